"""Every call shape of gen and select: on Mock what reaches a backend, on the bundled model what comes back."""

import datetime
import enum
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from ramet import (
    LLM,
    CallFailed,
    ClientError,
    Mock,
    exact_sequence,
    function,
    gen,
    gen_int,
    gen_string,
    greedy_token_selection,
    select,
    token_length_normalized,
    unconditional_likelihood_normalized,
)
from ramet.frontend.backends.base import GenCall, SelectCall


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(max_total_tokens=16384) as llm:
        yield llm


def run(expression: Any, backend: Any, prompt: str = "The answer is ", **options: Any) -> Any:
    @function
    def program(s):
        s += prompt + expression

    return program.run(backend=backend, **options)


def asked(expression: Any, **options: Any) -> Any:
    """The call that a backend gets."""
    mock = Mock(["0"])
    run(expression, mock, **options).error()  # waits; whether "0" is a value does not matter
    ((_, call),) = mock.calls
    return call


SAMPLED = {  # keyword of gen -> value given, and name and value of the sampling parameter
    "max_tokens": (7, "max_new_tokens", 7),
    "max_new_tokens": (7, "max_new_tokens", 7),
    "min_tokens": (3, "min_new_tokens", 3),
    "min_new_tokens": (3, "min_new_tokens", 3),
    "n": (2, "n", 2),
    "stop": ("\n", "stop", ("\n",)),
    "stop_token_ids": ([5, 6], "stop_token_ids", (5, 6)),
    "stop_regex": ("[.!]", "stop_regex", ("[.!]",)),
    "temperature": (0.5, "temperature", 0.5),
    "top_p": (0.9, "top_p", 0.9),
    "top_k": (4, "top_k", 4),
    "min_p": (0.1, "min_p", 0.1),
    "typical_p": (0.5, "typical_p", 0.5),
    "frequency_penalty": (0.5, "frequency_penalty", 0.5),
    "presence_penalty": (0.25, "presence_penalty", 0.25),
    "repetition_penalty": (1.5, "repetition_penalty", 1.5),
    "ignore_eos": (True, "ignore_eos", True),
    "seed": (11, "sampling_seed", 11),
    "skip_special_tokens": (False, "skip_special_tokens", False),
    "spaces_between_special_tokens": (False, "spaces_between_special_tokens", False),
    "no_stop_trim": (True, "no_stop_trim", True),
    "custom_params": ({"a": 1}, "custom_params", {"a": 1}),
}
PASSED = {  # keyword of gen -> value of the request's field of that name
    "return_logprob": True,
    "logprob_start_len": 2,
    "top_logprobs_num": 3,
    "token_ids_logprob": [1, 2],
    "return_text_in_logprobs": True,
    "priority": 5,
    "cache_salt": "mine",
    "extra_key": "key",
    "custom_logit_processor": "{}",
    "return_hidden_states": True,
    "grammar_backend": "llguidance",
    "token_healing": False,
}
ELSEWHERE = {
    "name", "dtype", "choices", "choices_method", "regex", "json_schema", "ebnf", "structural_tag", "logit_bias",
}  # fmt: skip


@pytest.mark.parametrize("keyword", SAMPLED)
def test_a_sampling_keyword_of_gen_reaches_the_backend(keyword: str):
    given, name, arrived = SAMPLED[keyword]
    mock = Mock(["0", "0"])
    run(gen("x", **{keyword: given}), mock).sync()
    ((_, call),) = mock.calls
    assert call.sampling[name] == arrived


@pytest.mark.parametrize("keyword", PASSED)
def test_another_field_of_a_request_reaches_the_backend(keyword: str):
    assert asked(gen("x", **{keyword: PASSED[keyword]})).options == {keyword: PASSED[keyword]}


def test_biases_reach_the_backend():
    assert dict(asked(gen("x", logit_bias={"5": 1, 6: -2.5})).sampling["logit_bias"]) == {5: 1.0, 6: -2.5}


def test_no_keyword_of_gen_is_left_out_of_these_tests():
    assert set(inspect.signature(gen).parameters) == {*SAMPLED, *PASSED, *ELSEWHERE}


def test_a_keyword_that_is_not_given_is_the_run_s():
    call = asked(gen("x", temperature=0.25), temperature=1.5, max_new_tokens=9, return_logprob=True)
    assert call.sampling == {"temperature": 0.25, "max_new_tokens": 9}
    assert call.options == {"return_logprob": True}


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"temperature": -1}, "temperature is -1"),
        ({"max_tokens": "9"}, "max_new_tokens is '9'"),
        ({"top_p": 0}, "top_p is 0"),
        ({"max_tokens": 3, "max_new_tokens": 4}, "both given"),
    ],
)
def test_a_wrong_value_is_refused_at_the_line_that_gives_it(keywords: dict[str, Any], message: str):
    with pytest.raises(ClientError, match=re.escape(message)):
        gen("x", **keywords)


@pytest.mark.parametrize("name", [5, b"x", "", ["x"]])
def test_a_name_is_a_text(name: Any):
    for make in (gen, lambda name: gen(name, choices=["a"]), lambda name: select(name, ["a"]), gen_int):
        with pytest.raises(ValueError, match=r"^name is .*, must be a text that is not empty$"):
            make(name)


def test_calls_without_a_name_are_numbered():
    @function
    def program(s):
        s += gen() + gen("x") + gen() + select(choices=["a"])

    state = program.run(backend=Mock(["0", "1", "2"]))
    assert [state[name] for name in ("gen_0", "x", "gen_1", "gen_2")] == ["0", "1", "2", "a"]


def test_of_n_samples_the_first_is_appended():
    state = run(gen("x", n=3), Mock(["a", "b", "c"]))
    assert state["x"] == ["a", "b", "c"] and state.text() == "The answer is a"
    assert [meta["finish_reason"]["type"] for meta in state.get_meta_info("x")] == ["stop"] * 3


def test_samples_of_the_model_differ(llm: LLM):
    texts = run(gen("x", n=4, max_tokens=12, seed=1), llm, "Once upon a time")["x"]
    assert len(texts) == 4 and len(set(texts)) > 1


# -- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [int, float, bool, str])
@pytest.mark.parametrize("by_name", [False, True])
def test_dtype_gives_a_value_of_that_type(llm: LLM, dtype: type, by_name: bool):
    state = run(gen("x", dtype=dtype.__name__ if by_name else dtype, max_tokens=24), llm, "37 + 58 = ", temperature=0)
    value = state["x"]
    assert isinstance(value, dtype)
    if dtype is int:
        assert value == 95


@pytest.mark.parametrize(("expression", "text", "value"), [(gen_int("x"), "12", 12), (gen_string("x"), '"a"', "a")])
def test_gen_int_and_gen_string(expression: Any, text: str, value: Any):
    state = run(expression, Mock([text]))
    assert state["x"] == value and state.text() == "The answer is " + text


@pytest.mark.parametrize("make", [gen_int, gen_string])
def test_gen_int_and_gen_string_take_values_in_their_order(make: Any):
    node = make("x", 8, 1, ["a"], [7], "b+", 0.5, 0.9, 5, 0.1, 0.2, 0.3, True, True, 0, 2, True)
    drawn = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1}
    penalties = {"frequency_penalty": 0.2, "presence_penalty": 0.3}
    ends = {"stop": ["a"], "stop_token_ids": [7], "stop_regex": "b+", "ignore_eos": True}
    told = {"return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2, "return_text_in_logprobs": True}
    named = make("x", max_tokens=8, n=1, **drawn, **penalties, **ends, **told)
    assert (node.sampling, node.options) == (named.sampling, named.options)
    with pytest.raises(TypeError, match="takes at most 17 values without a name, and here are 18"):
        make("x", *range(17))
    with pytest.raises(TypeError, match="has 'max_tokens' twice"):
        make("x", 8, max_tokens=8)


def test_numbers_are_put_together_with_texts():
    @function
    def program(s):
        s += gen("age", dtype=int) + gen("size", dtype=float)
        s += " " + s["age"] + " and " + s["size"] + "; " + f"{s['age'] + 1}"
        s += s["age"]
        s += s["size"] + gen("x")
        s += gen("y") + s["age"]

    assert program.run(backend=Mock(["41", "1.5", "x", "y"])).text() == "411.5 41 and 1.5; 42411.5xy41"


def test_an_output_that_was_cut_says_so_and_what_it_was():
    state = function(lambda s: s.extend(gen("x", json_schema=dict[str, int], max_tokens=2))).run(
        backend=Mock(['{"a": 1, "b": 2}'])
    )
    with pytest.raises(CallFailed, match=r"the output '.*', cut at its max_tokens is not a value of its type: "):
        state["x"]


def test_a_text_that_is_no_value_of_the_type_fails_its_call():
    with pytest.raises(CallFailed, match=r"gen\('x'\) at .* failed: ValueError: .*twelve"):
        run(gen("x", dtype=int), Mock(["twelve"]))["x"]


@pytest.mark.parametrize(
    "two", [{"dtype": int, "regex": "a"}, {"regex": "a", "ebnf": "root ::= 'a'"}, {"choices": ["a"], "dtype": str}]
)
def test_two_constraints_are_refused(two: dict[str, Any]):
    with pytest.raises(ValueError, match="an output keeps to one constraint only"):
        gen("x", **two)


def test_an_unknown_dtype_is_refused():
    with pytest.raises(ValueError, match="dtype is 'date'"):
        gen("x", dtype="date")


# -- constraints ------------------------------------------------------------------------------------------------------


@dataclass
class Point:
    x: int
    y: int


class StructPoint(msgspec.Struct):
    x: int
    y: int


class ModelPoint(pydantic.BaseModel):
    x: int
    y: int


class DictPoint(TypedDict):
    x: int
    y: int


POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
    "required": ["x", "y"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("schema", [POINT, json.dumps(POINT)], ids=["dict", "text"])
def test_a_schema_s_output_stays_a_text(llm: LLM, schema: Any):
    value = run(gen("x", json_schema=schema, max_tokens=64), llm, temperature=0)["x"]
    assert isinstance(value, str) and set(json.loads(value)) == {"x", "y"}


@pytest.mark.parametrize("kind", [Point, StructPoint, ModelPoint])
def test_a_class_s_output_is_an_instance(llm: LLM, kind: Any):
    state = run(gen("x", json_schema=kind, max_tokens=64), llm, temperature=0)
    point = state["x"]
    assert isinstance(point, kind)
    text = state.text().removeprefix("The answer is ")
    assert json.loads(text) == {"x": point.x, "y": point.y}


class Colour(enum.Enum):
    RED = "red"


class Pair(NamedTuple):
    word: str
    number: int


class Line(pydantic.BaseModel):
    begin: ModelPoint
    ends: list[ModelPoint]


class OpenPoint(pydantic.BaseModel, extra="allow"):
    x: int


def test_a_class_s_output_has_its_fields_only():
    """Others would be lost in the instance."""
    schema = asked(gen("x", json_schema=Line)).held.value
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["ModelPoint"]["additionalProperties"] is False
    assert asked(gen("x", json_schema=Point)).held.value["$defs"]["Point"]["additionalProperties"] is False
    assert asked(gen("x", json_schema=OpenPoint)).held.value["additionalProperties"] is True
    own = {"type": "object", "properties": {"x": {"type": "integer"}}}
    assert asked(gen("x", json_schema=own)).held.value == own


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (DictPoint, '{"x": 1, "y": 2}', {"x": 1, "y": 2}),
        (list[Point], '[{"x": 1, "y": 2}]', [Point(1, 2)]),
        (list[ModelPoint], '[{"x": 1, "y": 2}]', [ModelPoint(x=1, y=2)]),
        (dict[str, ModelPoint | None], '{"a": null}', {"a": None}),
        (dict[str, float], '{"a": 1.5}', {"a": 1.5}),
        (int, "3", 3),
        (Point | None, "null", None),
        (Literal["a", "b"], '"b"', "b"),
        (Colour, '"red"', Colour.RED),
        (Pair, '["a", 1]', Pair("a", 1)),
        (datetime.date, '"2026-01-31"', datetime.date(2026, 1, 31)),
    ],
)
def test_other_types(kind: Any, text: str, value: Any):
    assert run(gen("x", json_schema=kind), Mock([text]))["x"] == value


@pytest.mark.parametrize("schema", ["{no json", 3, object(), complex, list[complex]])
def test_what_is_no_schema_is_refused(schema: Any):
    with pytest.raises(ValueError, match="json_schema is"):
        gen("x", json_schema=schema)


@pytest.mark.parametrize(
    ("constraint", "form"),
    [
        ({"regex": "[a-c]{4}"}, "[a-c]{4}"),
        ({"ebnf": 'root ::= ("yes" | "no") "!"'}, "(yes|no)!"),
    ],
    ids=["regex", "ebnf"],
)
def test_an_output_keeps_to_its_constraint(llm: LLM, constraint: dict[str, str], form: str):
    text = run(gen("x", max_tokens=16, **constraint), llm)["x"]
    assert re.fullmatch(form, text), text


def test_a_structural_tag_reaches_the_model(llm: LLM):
    tag = {
        "type": "structural_tag",
        "format": {"type": "tag", "begin": "<a>", "content": {"type": "regex", "pattern": "[0-9]{2}"}, "end": "</a>"},
    }
    assert re.fullmatch("<a>[0-9]{2}</a>", run(gen("x", structural_tag=tag, max_tokens=16), llm)["x"])


def test_a_pattern_that_no_output_can_be_held_to_fails_with_its_construct(llm: LLM):
    """Python's re knows look-aheads and back references, the engine does not."""
    for pattern in ("(?=a)b", r"(a)\1"):
        with pytest.raises(CallFailed, match="regex") as failed:
            run(gen("x", regex=pattern), llm)["x"]
        assert isinstance(failed.value.reason, ClientError)


# -- select -----------------------------------------------------------------------------------------------------------

CHOICES = ["Paris", "Rome", "Lima"]


def chosen(expression: Any, backend: Any) -> Any:
    return run(expression, backend, "The capital of Peru is ")


@pytest.mark.parametrize(
    "method",
    [token_length_normalized, greedy_token_selection, unconditional_likelihood_normalized, exact_sequence],
)
def test_select_finds_the_most_probable_choice(llm: LLM, method: str):
    state = chosen(select("city", CHOICES, choices_method=method), llm)
    assert state["city"] == "Lima" and state.text() == "The capital of Peru is Lima"
    meta = state.get_meta_info("city")
    assert len(meta["scores"]) == 3 and sum(meta["probabilities"]) == pytest.approx(1)
    assert meta["probabilities"][2] == max(meta["probabilities"])


def test_choices_of_gen_are_select_s(llm: LLM):
    assert chosen(gen("city", choices=CHOICES), llm)["city"] == "Lima"
    call = asked(gen("city", choices=CHOICES, choices_method=exact_sequence, temperature=0.5, priority=3))
    assert call == SelectCall(tuple(CHOICES), exact_sequence, 0.5, {"priority": 3})


def test_select_s_keywords_reach_the_backend():
    call = asked(select("city", CHOICES, 0.5, exact_sequence, seed=4, priority=1, cache_salt="a", extra_key="b"))
    options = {"sampling_seed": 4, "priority": 1, "cache_salt": "a", "extra_key": "b"}
    assert call == SelectCall(tuple(CHOICES), exact_sequence, 0.5, options)
    assert asked(select("city", choices=CHOICES)) == SelectCall(tuple(CHOICES), token_length_normalized, 0.0)


def test_a_method_of_one_s_own_picks_from_the_scores(llm: LLM):
    seen = []

    def worst(choices):
        seen.extend(choices)
        return min(range(len(choices)), key=lambda index: choices[index].logprob)

    state = chosen(select("city", CHOICES, choices_method=worst), llm)
    city = state["city"]
    assert [choice.text for choice in seen] == CHOICES
    assert city == min(seen, key=lambda choice: choice.logprob).text != "Lima"


def test_a_temperature_draws_among_the_choices(llm: LLM):
    drawn = {chosen(select("city", CHOICES, temperature=50.0, seed=seed), llm)["city"] for seed in range(20)}
    assert drawn == set(CHOICES)
    again = [chosen(select("city", CHOICES, temperature=50.0, seed=3), llm)["city"] for _ in range(3)]
    assert len(set(again)) == 1


@pytest.mark.parametrize("choices", [None, "yes", [], [1, 2], ["a", "a"], ["a", ""]])
def test_what_are_no_choices_is_refused(choices: Any):
    with pytest.raises(ValueError, match="choices are"):
        select("x", choices)


def test_choices_method_needs_choices_and_a_known_name():
    with pytest.raises(ValueError, match="choices are not"):
        gen("x", choices_method=exact_sequence)
    with pytest.raises(ValueError, match="must be one of token_length_normalized"):
        select("x", ["a"], choices_method="best")


def test_nodes_are_methods_of_a_state_too():
    @function
    def program(s):
        s += s.gen("a", max_tokens=2) + s.gen_int("b") + s.gen_string("c") + s.select("d", ["e"])

    mock = Mock(["one two three", "2", '"f"'])
    state = program.run(backend=mock)
    assert [state[name] for name in "abcd"] == ["one two", 2, "f", "e"]
    assert [type(call) for _, call in mock.calls] == [GenCall, GenCall, GenCall, SelectCall]
