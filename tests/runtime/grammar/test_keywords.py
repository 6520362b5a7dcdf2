"""Every keyword on every backend: enforced exactly, or refused by its name.

A validator says which of the probes are valid; a backend takes those, and none of the others. What these tests see is
what the tables of docs/structured-output.md say.
"""

import json
import random
from itertools import product

import pytest
from constrained import NAMES, allowed, compiled, takes, vocabulary
from grammar_cases.capabilities import enforced, refuses
from grammar_cases.probes import CLOSED, INT, PAIR, REFUSED, SCHEMAS, STR, is_valid
from grammar_cases.refusals import PARTS, SHAPES
from samples import sampled

from ramet.ipc.spec import ConstraintKind
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.keywords import KEYWORDS, UNSUPPORTED

JSON = ConstraintKind.JSON_SCHEMA
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


def test_every_keyword_has_a_probe():
    assert {*SCHEMAS} | {*REFUSED} | {"$id", "id"} == KEYWORDS


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("keyword", sorted({*SCHEMAS} | {*REFUSED}))
def test_a_keyword_is_enforced_exactly_or_refused_by_name(name, keyword):
    assert enforced(name, keyword) == (keyword not in UNSUPPORTED[name])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.refused)
def test_a_part_of_a_keyword_is_refused_by_its_name(name, part):
    """And taken by the others, where no other line of the table is about it."""
    others = UNSUPPORTED[name].union(*(p.keywords for p in PARTS if name in p.backends and p is not part))
    for schema in part.examples:
        if name in part.backends:
            assert refuses(name, part, schema), schema
        elif others.isdisjoint(part.keywords):
            assert not refuses(name, part, schema), schema


@pytest.mark.parametrize("name", NAMES)
def test_shapes_are_refused_in_the_words_of_the_table(name):
    for words, schemas in SHAPES[name].items():
        for schema in schemas:
            with pytest.raises(GrammarError, match=words):
                compiled(name, JSON, json.dumps(schema))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("whitespace", "schema"), sampled(product(["single-space", "flexible"], COMBINED), len(COMBINED))
)
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
