"""The words of a constraint become one Constraint; what no backend could take is refused before anything is sent."""

import json
import random
import re
from typing import Any

import orjson
import pytest
from constrained import compiled, takes
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import Constraint, ConstraintKind, RequestSpec
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.constraints import beginning_after, of_choices, of_schema, of_tag, only_one
from ramet.runtime.intake.limits import MAX_CHOICES, MAX_CONSTRAINT_BYTES
from ramet.runtime.intake.specs import ConstraintFields, SpecLists, read_specs
from tests.fakes.effort import num_calls

PARAMS = SamplingParams()
SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}}
WRITTEN = '{"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"string"}}}'
TAG = {"type": "structural_tag", "format": {"type": "const_string", "value": "x"}}
OLD_TAG = {"structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}], "triggers": ["<a>"]}


def constraints(count: int, **body: Any) -> list[Constraint | None]:
    specs = read_specs(convert(body, SpecLists), count, count > 1, PARAMS, processors_on=False)
    return [spec.constraint for spec in specs]


def refusal(count: int = 1, **body: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        constraints(count, **body)
    return caught.value


@pytest.mark.parametrize("name, value, kind, text", [
    ("regex", r"\d+", ConstraintKind.REGEX, r"\d+"),
    ("ebnf", 'root ::= "a"', ConstraintKind.EBNF, 'root ::= "a"'),
    ("json_schema", SCHEMA, ConstraintKind.JSON_SCHEMA, WRITTEN),
    ("json_schema", json.dumps(SCHEMA), ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA)),
    ("json_schema", {}, ConstraintKind.JSON_SCHEMA, "{}"),
    ("json_schema", "true", ConstraintKind.JSON_SCHEMA, "true"),
    ("structural_tag", TAG, ConstraintKind.STRUCTURAL_TAG, json.dumps(TAG, separators=(",", ":"))),
    ("structural_tag", json.dumps(OLD_TAG), ConstraintKind.STRUCTURAL_TAG, json.dumps(OLD_TAG)),
])  # fmt: skip
def test_a_field_becomes_a_constraint(name: str, value: Any, kind: ConstraintKind, text: str) -> None:
    assert constraints(1, sampling_params={name: value}) == [Constraint(kind, text, f"sampling_params.{name}")]


@pytest.mark.parametrize("choices", [
    [f"{i:06d}" for i in range(MAX_CHOICES)], [f"Article {i} (1 + 1?)" for i in range(MAX_CHOICES)],
    ["".join(random.Random(i).choices("\\日本ü ab\n|", k=25)) for i in range(3000)],
])  # fmt: skip
def test_as_many_choices_as_are_allowed_compile(choices: list[str]) -> None:
    found = of_choices("guided_choice", choices)
    assert 65_536 < len(found.text.encode()) < MAX_CONSTRAINT_BYTES
    grammar = compiled("llguidance", found.kind, found.text)
    assert takes(grammar, choices[-1]) and not takes(grammar, choices[-1] + "x")


@pytest.mark.parametrize("params", [None, {}, {"regex": "", "json_schema": None, "ebnf": "", "structural_tag": ""}])
def test_nothing_asked_is_no_constraint(params: Any) -> None:
    assert constraints(2, sampling_params=params, grammar_backend="outlines") == [None, None]


def test_each_prompt_may_have_its_own() -> None:
    first, second, third = constraints(3, sampling_params=[{"regex": "a"}, None, {"ebnf": "b"}])
    assert first is not None and third is not None and second is None
    # the engine's own words for the field: where the client wrote it is put in front later
    assert (first.text, first.place, third.place) == ("a", "sampling_params.regex", "sampling_params.ebnf")


def test_the_backend_stands_in_the_parameters_or_beside_them() -> None:
    asked = {"regex": "a"}
    for body in (
        {"sampling_params": {**asked, "grammar_backend": "xgrammar"}},
        {"sampling_params": asked, "grammar_backend": "xgrammar"},
        {"sampling_params": {**asked, "grammar_backend": "xgrammar"}, "grammar_backend": "xgrammar"},
    ):
        (found,) = constraints(1, **body)
        assert found is not None and found.backend == "xgrammar"
    each = constraints(2, sampling_params=asked, grammar_backend=["outlines", None])
    assert [found and found.backend for found in each] == ["outlines", ""]


DEEP = "[" * 65 + "]" * 65
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"regex": "a" * (MAX_CONSTRAINT_BYTES + 1)}, "regex", "has 262145 bytes, must have at most 262144"),
    ({"ebnf": "é" * (MAX_CONSTRAINT_BYTES // 2 + 1)}, "ebnf", "has 262146 bytes"),
    ({"json_schema": {"const": "a" * MAX_CONSTRAINT_BYTES}}, "json_schema", "must have at most 262144"),
    ({"regex": "a\0"}, "regex", "NUL"),
    ({"ebnf": "\0"}, "ebnf", "NUL"),
    ({"json_schema": {"enum": [{"a": ["\0"]}]}}, "json_schema", "NUL"),
    ({"json_schema": {"properties": {"\0": {}}}}, "json_schema", "NUL"),
    ({"regex": "\ud800"}, "regex", "must be valid Unicode"),
    ({"json_schema": {"const": "\ud800"}}, "json_schema", "must be valid Unicode"),
    ({"json_schema": '{"a": '}, "json_schema", "is not valid JSON"),
    ({"json_schema": '{"maximum": 1e400}'}, "json_schema", "has the number 1e400 at character 12, must be in [-1.79"),
    ({"json_schema": "[]"}, "json_schema", "must be a JSON schema: an object, true or false"),
    ({"json_schema": "5"}, "json_schema", "must be a JSON schema: an object, true or false"),
    ({"json_schema": '{"const": ' + DEEP + "}"}, "json_schema", "is nested deeper than 64 levels"),
    ({"json_schema": "[" * 10_000}, "json_schema", "is not valid JSON"),
    ({"json_schema": {"const": float("nan")}}, "json_schema", "cannot be written as JSON"),
    ({"json_schema": {"const": object}}, "json_schema", "cannot be written as JSON"),
    ({"structural_tag": "{}"}, "structural_tag", "must be a JSON object with `format`, or `structures` and"),
    ({"structural_tag": "true"}, "structural_tag", "must be a JSON object with `format`, or `structures` and"),
    ({"structural_tag": {"structures": []}}, "structural_tag", "must be a JSON object with `format`"),
    ({"grammar_backend": "antlr"}, "grammar_backend", "'llguidance' or 'outlines' or 'xgrammar'"),
    ({"regex": 5}, "regex", "is 5, must be a string"),
    ({"json_schema": 5}, "json_schema", "is 5, must be a string or an object"),
]


@pytest.mark.parametrize("params, name, piece", BAD, ids=[f"{name}: {piece}" for _, name, piece in BAD])
def test_what_no_backend_could_take_is_named(params: dict[str, Any], name: str, piece: str) -> None:
    error = refusal(sampling_params=params)
    assert error.place == f"sampling_params.{name}" and piece in error.fact and error.status == 400
    assert refusal(2, sampling_params=[{}, params]).place == f"sampling_params[1].{name}"


def test_a_pattern_may_speak_of_nul_without_having_one() -> None:
    schema = {"type": "string", "pattern": r"^[^\u0000-\u001f]*$"}
    (found,) = constraints(1, sampling_params={"json_schema": schema})
    assert found is not None and json.loads(found.text) == schema


def test_two_names_of_a_backend_must_agree() -> None:
    params = {"regex": "a", "grammar_backend": "xgrammar"}
    error = refusal(2, sampling_params=params, grammar_backend=["xgrammar", "outlines"])
    assert str(error).startswith("grammar_backend[1] is 'outlines', but sampling_params.grammar_backend is 'xgrammar'")
    assert refusal(1, grammar_backend="antlr").place == "grammar_backend"


def test_a_second_constraint_is_refused_in_words_that_clients_know() -> None:
    error = refusal(sampling_params={"regex": "a", "json_schema": {}})
    words = "Only one of json_schema, regex, ebnf, or structural_tag can be set."
    assert error.fact == f"{words} Here json_schema and regex are."
    found = [of_schema("response_format", {}), *convert({"regex": "a"}, ConstraintFields).constraints()]
    with pytest.raises(ClientError, match=r"^regex is set, but so is response_format: an output keeps to one of them"):
        only_one(found, None)


NASTY = st.text(
    st.sampled_from([*r"\.+*?()|[]{}^$/#&-~'\"` ", "\n", "\r", "\t", "a", "1", "é", "．", "＊", "（", "日"])
)


@examples(100, 2000)
@given(st.lists(NASTY.filter(bool), min_size=1, max_size=5, unique=True), NASTY)
def test_choices_allow_these_texts_and_no_other(choices: list[str], other: str) -> None:
    pattern = of_choices("guided_choice", choices)
    assert pattern.kind is ConstraintKind.REGEX
    assert all(re.fullmatch(pattern.text, choice) for choice in choices)
    assert bool(re.fullmatch(pattern.text, other)) == (other in choices)


@pytest.mark.parametrize("choices, message", [
    ([], "c is [], must not be empty"), (["a", ""], "c[1] is '', must not be empty"),
    (["a", "b", "a"], "c[2] is 'a', as c[0] is: they must differ"),
    (["a"] * 10_001, "c has 10001 choices, must have at most 10000"),
    (["a" * MAX_CONSTRAINT_BYTES, "b"], "c has 262146 bytes"), (["a\0"], "c has a NUL character"),
])  # fmt: skip
def test_choices_are_checked(choices: list[str], message: str) -> None:
    with pytest.raises(ClientError) as caught:
        of_choices("c", choices)
    assert str(caught.value).startswith(message)


def test_a_constraint_may_begin_after_a_text() -> None:
    spec = RequestSpec(PARAMS, constraint=of_tag("structural_tag", TAG))
    begun = beginning_after(spec, "</think>").constraint
    assert begun is not None and begun.after == "</think>" and begun.text == spec.constraint.text
    assert beginning_after(RequestSpec(PARAMS), "</think>") == RequestSpec(PARAMS)


def test_a_nul_is_found_without_a_look_at_each_string() -> None:
    schema = json.dumps({"enum": ["\\u0000", *[""] * 5000]})  # a backslash and five characters
    constraints(1, sampling_params={"json_schema": schema})  # what only a first call compiles
    assert num_calls(lambda: constraints(1, sampling_params={"json_schema": schema})) < 1000
    for nul in ("\0", "\\\0", "a\\\\\0"):
        assert "NUL" in str(refusal(sampling_params={"json_schema": json.dumps({"enum": [nul]})}))


def test_choices_are_spelled_by_few_calls() -> None:
    choices = [f"{i}." + "a" * 100 for i in range(500)]
    assert num_calls(lambda: of_choices("choices", choices)) < 4 * len(choices) + 100


@pytest.mark.parametrize("more", [{}, {"default": None}, {"type": ["object", "null"]}])
def test_a_schema_of_a_body_is_written_without_a_look_at_each_key(more: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {f"k{i}": True for i in range(5000)}, **more}
    text = orjson.dumps(schema).decode()
    assert of_schema("json_schema", schema).text == text
    assert num_calls(lambda: of_schema("json_schema", schema)) < 60
