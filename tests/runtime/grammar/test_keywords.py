"""Every keyword on every backend: enforced exactly, or refused by its name.

A validator says which of the probes are valid; a backend takes those, and none of the others.
"""

import json
import random

import pytest
from constrained import NAMES, allowed, backend, compiled, takes, vocabulary
from jsonschema import Draft202012Validator

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.keywords import KEYWORDS, UNSUPPORTED

JSON = ConstraintKind.JSON_SCHEMA
INT, STR = {"type": "integer"}, {"type": "string"}
PAIR = {"a": INT, "b": STR}
CLOSED = {"type": "object", "properties": PAIR, "additionalProperties": False}
SCHEMAS = {  # keyword -> schemas that it decides
    "type": [INT, STR, {"type": "number"}, {"type": "boolean"}, {"type": "null"}, {"type": ["integer", "null"]}],
    "enum": [{"enum": [1, "a", None, [1], {"a": 1}]}, {"type": "string", "enum": ["a", "é", 'q"\\\n']}],
    "const": [{"const": {"a": [1, "x"]}}, {"const": 3}],
    "minimum": [{"type": "integer", "minimum": 3}, {"type": "number", "minimum": 2.5}],
    "maximum": [{"type": "integer", "maximum": -1}, {"type": "number", "maximum": 2.5}],
    "exclusiveMinimum": [{"type": "integer", "exclusiveMinimum": 3}, {"type": "number", "exclusiveMinimum": 2.5}],
    "exclusiveMaximum": [{"type": "integer", "exclusiveMaximum": 3}, {"type": "number", "exclusiveMaximum": 2.5}],
    "multipleOf": [{"type": "integer", "multipleOf": 3}, {"type": "number", "multipleOf": 0.5}],
    "minLength": [{"type": "string", "minLength": 2}],
    "maxLength": [{"type": "string", "maxLength": 2}],
    "pattern": [{"type": "string", "pattern": "^[ab]+$"}, {"type": "string", "pattern": '"|é'}],
    "format": [{"type": "string", "format": "date"}],
    "properties": [CLOSED, {"type": "object", "properties": {"a": False}, "additionalProperties": INT}],
    "required": [CLOSED | {"required": ["a"]}, CLOSED | {"required": ["a", "b"]}],
    "additionalProperties": [CLOSED, {"type": "object", "properties": PAIR, "additionalProperties": {"type": "null"}}],
    "patternProperties": [
        {"type": "object", "patternProperties": {"^[ab]$": INT}, "additionalProperties": False},
    ],
    "minProperties": [
        {"type": "object", "additionalProperties": INT, "minProperties": 1},
        CLOSED | {"minProperties": 1},
    ],
    "maxProperties": [{"type": "object", "additionalProperties": INT, "maxProperties": 1}],
    "items": [{"type": "array", "items": INT}, {"type": "array", "items": False}],
    "additionalItems": [{"type": "array", "prefixItems": [INT], "items": STR}],
    "prefixItems": [{"type": "array", "prefixItems": [INT, STR], "items": False}],
    "minItems": [{"type": "array", "items": INT, "minItems": 1}],
    "maxItems": [{"type": "array", "items": INT, "maxItems": 1}],
    "anyOf": [{"anyOf": [INT, {"const": "a"}]}, {"type": "integer", "anyOf": [{"minimum": 3}, {"maximum": -3}]}],
    "allOf": [
        {"type": "integer", "allOf": [{"minimum": 2}, {"maximum": 4}]},
        {"allOf": [CLOSED, {"type": "object", "required": ["b"]}]},
    ],
    "oneOf": [{"oneOf": [INT, {"type": "null"}]}, {"oneOf": [{"const": 1}, {"enum": [2, "a"]}]}],
    "$ref": [{"$ref": "#/$defs/x", "$defs": {"x": INT}}, {"$ref": "#/$defs/x", "$defs": {"x": INT}, "minimum": 2}],
    "$defs": [{"type": "array", "items": {"$ref": "#/$defs/x"}, "$defs": {"x": INT}}],
    "definitions": [{"type": "array", "items": {"$ref": "#/definitions/x"}, "definitions": {"x": INT}}],
}
REFUSED_VALUES = {  # keyword -> a value that it may have
    "not": {}, "if": {}, "then": {}, "else": {}, "contains": {}, "minContains": 1, "maxContains": 1,
    "uniqueItems": True, "propertyNames": {}, "dependentRequired": {}, "dependentSchemas": {}, "dependencies": {},
    "unevaluatedItems": False, "unevaluatedProperties": False, "$anchor": "a", "$dynamicRef": "#a",
    "$dynamicAnchor": "a", "$recursiveRef": "#", "$recursiveAnchor": True, "multipleOf": 2,
}  # fmt: skip
VALUES = [
    None, True, False, 0, 1, 2, 3, 4, 6, -1, -3, 12, 0.5, 1.5, 2.5, 2.25, 3.75, "", "a", "ab", "abc", "é", "ba b",
    'q"\\\n', "2024-02-29", "2023-02-29", [], [1], [1, 2], [1, "x"], [1, "x", 2], ["x"], [[]], {}, {"a": 1}, {"b": "x"},
    {"a": "x"}, {"a": 1, "b": "x"}, {"a": 1, "b": 2}, {"c": None}, {"c": 1}, {"a": 1, "c": None}, {"a": [1, "x"]},
    {"a": 1, "b": "x", "c": 1},
]  # fmt: skip
RECURSIVE = {"type": "object", "properties": {"n": INT, "next": {"$ref": "#"}}, "required": ["n"]}
COMBINED = [
    {"type": "object", "properties": PAIR, "required": ["b"]},
    {"type": "object", "properties": PAIR, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"type": "object", "properties": {"a": {"anyOf": [INT, {"type": "null"}]}, "b": {"type": ["string", "null"]}}},
    {"allOf": [{"type": "object", "properties": {"a": {"minimum": 2}}}, CLOSED]},
    {"allOf": [{"type": "object", "properties": {"a": INT}, "required": ["a"]}, {"properties": {"c": STR}}]},
    {"type": "array", "items": {"oneOf": [INT, CLOSED | {"required": ["a"]}]}, "minItems": 1, "maxItems": 3},
    {"type": "array", "prefixItems": [INT, STR], "items": {"type": "boolean"}, "minItems": 1, "maxItems": 4},
    {"type": "string", "format": "date-time"},
    {"type": "object", "additionalProperties": {"maxLength": 3, "type": "string"}, "minProperties": 1},
    {"type": "object", "additionalProperties": {"minimum": 3, "type": "number"}, "maxProperties": 2},
    {"type": "object", "properties": {'q"': INT, "": STR, "é": INT}, "additionalProperties": {"type": "null"}},
    {"type": "object", "properties": {"a": INT}, "required": ["z", "a"], "additionalProperties": STR},
    {"minimum": 3, "maxLength": 2, "maxItems": 1, "maxProperties": 1},
    {"properties": PAIR, "items": INT},
    {"enum": [1, 2, "a", "abc", [1], [1, 2]], "minimum": 2, "maxLength": 1, "maxItems": 1},
    RECURSIVE,
    {"$defs": {"t": {"type": "array", "items": {"anyOf": [INT, {"$ref": "#/$defs/t"}]}}}, "$ref": "#/$defs/t"},
    True,
]  # fmt: skip


def is_valid(schema, value) -> bool:
    checker = Draft202012Validator.FORMAT_CHECKER
    return Draft202012Validator(schema, format_checker=checker).is_valid(value)


def test_every_keyword_has_a_probe():
    assert {*SCHEMAS} | {*REFUSED_VALUES} | {"$id", "id"} == KEYWORDS


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("keyword", sorted(SCHEMAS))
def test_a_keyword_is_enforced_exactly_or_refused_by_name(name, keyword):
    for schema in SCHEMAS[keyword]:
        if keyword in UNSUPPORTED[name]:
            with pytest.raises(GrammarError, match=f"{name} does not enforce '{keyword}'"):
                compiled(name, JSON, json.dumps(schema))
            continue
        ready = compiled(name, JSON, json.dumps(schema))
        for value in VALUES:
            text = json.dumps(value, ensure_ascii=False)
            assert takes(ready, text) == is_valid(schema, value), (schema, value)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("keyword", sorted(REFUSED_VALUES))
def test_a_keyword_that_is_not_enforced_is_refused_by_name(name, keyword):
    if keyword in UNSUPPORTED[name]:
        schema = {"type": "array", "items": {keyword: REFUSED_VALUES[keyword]}}
        with pytest.raises(GrammarError, match=f"does not enforce '{keyword.replace('$', '[$]')}'") as caught:
            backend(name).prepare(Constraint(JSON, json.dumps(schema)), "compact")
        assert caught.value.fact.startswith(f"#/items/{keyword}: ")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("whitespace", ["single-space", "flexible"])
@pytest.mark.parametrize("schema", COMBINED, ids=range(len(COMBINED)))
def test_whatever_is_drawn_at_random_is_valid(name, whitespace, schema):
    try:
        ready = compiled(name, JSON, json.dumps(schema), whitespace)
    except GrammarError as error:
        assert name == "outlines" and ("any value" in error.fact or "type" in error.fact or "itself" in error.fact)
        return
    rng = random.Random(7)
    finished = [text for text in (drawn(ready, rng) for _ in range(8)) if text is not None]
    for text in finished:
        assert is_valid(schema, json.loads(text)), text


def drawn(ready, rng: random.Random) -> str | None:
    """An output of random legal tokens, mostly short ones; None where it has not ended in time."""
    tokenizer, ends = vocabulary().tokenizer, vocabulary().eos_ids
    grammar = ready.start()
    taken: list[int] = []
    for _ in range(80):
        legal = allowed(grammar)
        if legal & ends and (rng.random() < 0.4 or legal == ends):
            return b"".join(tokenizer.token_bytes(token) or b"" for token in taken).decode()
        short = [t for t in sorted(legal - ends) if (tokenizer.token_bytes(t) or b"") in CLOSING]
        token = rng.choice(short if short and len(taken) > 12 else sorted(legal - ends))
        assert grammar.accept(token)
        taken.append(token)
    return None


CLOSING = {b'"', b"}", b"]", b'"]', b'"}', b"1", b'":', b",", b" "}


def test_an_escape_cannot_spell_the_name_of_another_property():
    schema = {"type": "object", "properties": {"a": INT}, "additionalProperties": STR}
    for name in NAMES:
        ready = compiled(name, JSON, json.dumps(schema))
        assert takes(ready, '{"a": 1, "b": "x"}')
        assert not takes(ready, '{"a": 1, "\\u0061": "x"}')
        assert not takes(ready, '{"a": 1, "a": "x"}')


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_is_written_or_refused(name):
    for value in ("\t\n", "a\x7f", "\x01", {"a": "\x1f"}, "\u2028é"):
        try:
            ready = compiled(name, JSON, json.dumps({"const": value}))
        except GrammarError as error:
            assert name == "llguidance" and "does not write its control character" in error.fact
            continue
        assert takes(ready, json.dumps(value, ensure_ascii=False))


def test_a_string_has_no_raw_control_characters():
    for name in NAMES:
        for schema in (
            STR,
            {"type": "string", "minLength": 1, "maxLength": 9},
            {"type": "string", "pattern": r"^\s+$"},
        ):
            ready = compiled(name, JSON, json.dumps(schema))
            assert takes(ready, '"\\n\\t"')
            assert not takes(ready, '"\n"') and not takes(ready, '"\t"') and not takes(ready, '"\x01"')
