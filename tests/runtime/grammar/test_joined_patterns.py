"""Several patterns of one string as fewer: the same texts, and few steps for llguidance to see that there is one."""

import json
import re
from collections.abc import Iterable
from functools import cache
from itertools import combinations

import pytest
from constrained import compiled, takes
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from ramet.ipc.spec import ConstraintKind
from ramet.runtime.grammar.joined_patterns import joined
from ramet.runtime.grammar.regex import found_within, write

PATTERNS = ["a", "b$", "a.b", "(ab|ba){2}", "^.{3,5}$", "^[^a]*$", "a(b|c)*a"]


@cache
def whole(pattern: str) -> str:
    return f"^(?:{write(found_within(pattern))})$"


@cache
def pairs() -> list[tuple[tuple[str, str], list[str]]]:
    """Every two patterns, and what they are together."""
    return [(pair, joined([*map(whole, pair)])) for pair in combinations(PATTERNS, 2)]


def fits(text: str, patterns: Iterable[str]) -> bool:
    return all(re.search(pattern, text) for pattern in patterns)


@given(st.text(alphabet="aabbc\n", max_size=7))
@examples(30, 1000)
def test_joined_patterns_match_what_each_of_them_does(text: str) -> None:
    for pair, together in pairs():
        assert fits(text, together) == fits(text, map(whole, pair)), (pair, together)


def test_patterns_become_one_unless_nothing_matches_both() -> None:
    apart = {pair for pair, together in pairs() if len(together) > 1}
    assert apart == {(one, "^[^a]*$") for one in ("a", "a.b", "(ab|ba){2}")} | {("^[^a]*$", "a(b|c)*a")}


@pytest.mark.parametrize(
    ("patterns", "fits", "differs"),
    [
        ((".{10}b", ".{10}c"), "0123456789bc", "0123456789b"),
        ((".{10}", ".{11}", ".{12}", ".{13}"), "0123456789abc", "0123456789ab"),
        (("a.{10}", ".{10}b", "(a|b).{10}", "e.{10}f"), "a123456789bee0123456789fe01", "a123456789bee0123456789ge01"),
    ],
)
def test_llguidance_takes_counts_of_any_character_together(patterns: tuple[str, ...], fits: str, differs: str) -> None:
    first, *others = patterns
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": first}}, "required": ["x"]}
    schema["properties"]["x"]["allOf"] = [{"pattern": pattern} for pattern in others]  # type: ignore[index]
    ready = compiled("llguidance", ConstraintKind.JSON_SCHEMA, json.dumps(schema))
    assert takes(ready, json.dumps({"x": fits})) and not takes(ready, json.dumps({"x": differs}))


def test_what_is_no_pattern_of_the_same_string_stays() -> None:
    part, constant = {"pattern": ".{10}b"}, {"pattern": "a", "allOf": [{"pattern": "b"}]}
    schema = {
        "type": "object",
        "properties": {
            "x": {"type": "string", "allOf": [part, {"pattern": ".{10}c"}]},
            "pattern": {"const": constant},
            "allOf": {"type": "string", "pattern": "^c$"},
        },
        "required": ["x", "pattern", "allOf"],
        "additionalProperties": False,
    }
    ready = compiled("llguidance", ConstraintKind.JSON_SCHEMA, json.dumps(schema))
    assert takes(ready, json.dumps({"x": "0123456789bc", "pattern": constant, "allOf": "c"}))
    schema["properties"]["y"] = {"type": "string", "$ref": "#/properties/x/allOf/0"}  # type: ignore[index]
    ready = compiled("llguidance", ConstraintKind.JSON_SCHEMA, json.dumps(schema))
    whole = {"x": "0123456789bc", "pattern": constant, "allOf": "c", "y": "0123456789b"}
    assert takes(ready, json.dumps(whole))
    assert not any(takes(ready, json.dumps(whole | other)) for other in ({"x": "0123456789b"}, {"y": "0123456789c"}))
