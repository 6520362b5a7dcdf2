"""What a backend may refuse: the keywords of UNSUPPORTED, and of some others a part, which its example shows."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ramet.runtime.grammar.backends import BACKENDS
from ramet.runtime.grammar.base import BackendName, GrammarError
from ramet.runtime.grammar.keywords import UNSUPPORTED

ALL: tuple[BackendName, ...] = tuple(BACKENDS)
WRITTEN_OUT: tuple[BackendName, ...] = ("xgrammar", "outlines")  # schemas become rules or a pattern there
INT, STR = {"type": "integer"}, {"type": "string"}
CLOSED = {"type": "object", "properties": {"a": INT, "b": INT, "c": INT}, "additionalProperties": False}


class Part(NamedTuple):
    """What is refused of keywords that are enforced otherwise."""

    keywords: tuple[str, ...]
    refused: str
    backends: tuple[BackendName, ...]
    examples: tuple[Mapping[str, Any], ...]


def _strings(**keywords: Any) -> dict[str, Any]:
    return {**STR, **keywords}


def _patterned(*patterns: str, others: Any = False, **more: Any) -> dict[str, Any]:
    found = {"patternProperties": dict.fromkeys(patterns, INT), "additionalProperties": others}
    return {"type": "object", **found, **more}


PARTS = (
    Part(("pattern", "patternProperties"), "lookaround, backreferences, `\\b`, and anchors inside", ALL,
         (_strings(pattern="a(?=b)"), _strings(pattern=r"(a)\1"), _strings(pattern=r"a\bc"), _patterned("a(?!b)"))),
    Part(("pattern", "patternProperties"), "what becomes an automaton of very many states", WRITTEN_OUT,
         (_strings(pattern="a.{20}b"),)),
    Part(("format",), "formats that are not named below", ALL, (_strings(format="idn-email"),)),
    Part(("oneOf",), "options of which a value may fit two", ALL, ({"oneOf": [INT, {"type": "number"}]},)),
    Part(("$ref",), "other documents, and references in a circle", ALL,
         ({"$ref": "http://x/y"}, {"$ref": "#/$defs/x", "$defs": {"x": {"$ref": "#/$defs/x"}}})),
    Part(("properties",), "more than 400 that are not required", ALL,
         ({"type": "object", "properties": {f"p{i}": INT for i in range(401)}},)),
    Part(("minProperties",), "more than one above the number of `required` names", ALL,
         ({"type": "object", "additionalProperties": INT, "minProperties": 2},)),
    Part(("const", "enum"), "numbers beyond 2^53, and decimals that a double rounds", ALL,
         ({"const": 2**53 + 1}, {"enum": ["a", -(2**53) - 1]})),
    Part(("const", "enum"), "text with control characters that JSON has no short escape for", ("llguidance",),
         ({"const": "\x01"}, {"enum": ["a", "\x7f"]})),
    Part(("multipleOf",), "steps of ten and more digits", ("llguidance",),
         ({"type": "number", "multipleOf": 0.12345678901},)),
    Part(("patternProperties",), "patterns that share a name, or for whose properties nothing is valid",
         ("llguidance",),
         (_patterned("^a", "b$"), {**_patterned(others=INT), "patternProperties": {"^a$": False}})),
    Part(("patternProperties",), "all but one pattern, alone, with `\"additionalProperties\": false`", WRITTEN_OUT,
         (_patterned("^a$", "^b$"), _patterned("^a$", properties={"q": INT}), _patterned("^a$", others=INT),
          {"allOf": [_patterned("^a$"), CLOSED]})),
    Part(("minProperties", "maxProperties"), "beside properties that may be left out", ("llguidance",),
         (CLOSED | {"maxProperties": 2}, CLOSED | {"additionalProperties": INT, "minProperties": 1})),
    Part(("minProperties", "maxProperties"), "where some of two or more properties may be left out", WRITTEN_OUT,
         (CLOSED | {"required": ["a"], "minProperties": 2}, CLOSED | {"maxProperties": 2})),
    Part(("minLength", "maxLength"), "beside `pattern` or `format`", WRITTEN_OUT,
         (_strings(pattern="^[ab]+$", minLength=2), _strings(format="email", maxLength=9))),
    Part(("minLength", "maxLength"), "more than 255", ("xgrammar",),
         (_strings(minLength=256), _strings(maxLength=256))),
    Part(("pattern", "format"), "two different ones for the same value, as by `allOf`", WRITTEN_OUT,
         (_strings(allOf=[{"pattern": "^a"}, {"pattern": "b$"}]),)),
    Part(("anyOf", "allOf"), "alternatives that multiply to more than 256", WRITTEN_OUT,
         ({"allOf": [{"anyOf": [{**INT, "minimum": i} for i in range(5)]} for _ in range(4)]},)),
)  # fmt: skip
SHAPES: Mapping[BackendName, Mapping[str, tuple[Any, ...]]] = {  # words of the error -> schemas, refused as a whole
    "llguidance": {},
    "xgrammar": {},
    "outlines": {
        "allows any value": (True, {}, {"type": "array"}, {"type": "object", "additionalProperties": True}),
        "has no type": ({"minimum": 3},),
        "refers to itself": ({"type": "object", "properties": {"x": {"$ref": "#"}}},),
        "is too large for outlines": (
            {"type": "string", "maxLength": 6_000},
            {"type": "object", "properties": {f"p{i}": INT for i in range(300)}, "additionalProperties": False},
        ),
    },
}
REGEXES: Mapping[BackendName, tuple[str, ...]] = {  # what is refused of regular expressions
    "llguidance": (),
    "xgrammar": ("has an automaton that is too large",),
    "outlines": ("has an automaton that is too large",),
}
EMPTY = re.compile("nothing|[Uu]nsatisfiable")  # of schemas that nothing is valid for


def partly(backend: BackendName) -> frozenset[str]:
    """The keywords of which the backend refuses a part."""
    return frozenset(keyword for part in PARTS if backend in part.backends for keyword in part.keywords)


def rightful(error: GrammarError, schema: Any, backend: BackendName) -> bool:
    """The refusal is for a keyword in the schema, or a shape, that stands on a list and is named."""
    if names(error, (UNSUPPORTED[backend] | partly(backend)) & keys(schema)):
        return True
    if any(shape in error.fact for shape in SHAPES[backend]):
        return True
    return EMPTY.search(error.fact) is not None and ("false" in json.dumps(schema) or "not" in keys(schema))


def names(error: GrammarError, keywords: Iterable[str]) -> bool:
    """One of them stands at the end of the place of what is wrong, or between the words that say what is."""
    return any(re.search(rf"(?:^|[/\s'])({re.escape(keyword)})(?:[:\s']|$)", error.fact) for keyword in keywords)


def rightful_of_regex(error: GrammarError, backend: BackendName) -> bool:
    return any(shape in error.fact for shape in REGEXES[backend])


def keys(value: Any) -> set[str]:
    """Every key of every object in it."""
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set().union(*map(keys, value)) if isinstance(value, list) else set()
