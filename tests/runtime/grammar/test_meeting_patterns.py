"""Patterns that meet in one string by nesting, references, alternatives or properties, as llguidance holds to them."""

import json
import re
from itertools import combinations
from typing import Any

import pytest
from constrained import compiled, takes

from ramet.ipc.spec import ConstraintKind
from ramet.runtime.grammar.base import CompiledConstraint, GrammarError
from ramet.runtime.grammar.json_schema import read_value
from ramet.runtime.grammar.meeting_patterns import Proofs, prove_patterns
from ramet.runtime.grammar.regex import found_within, write

B, C = {"pattern": ".{10}b"}, {"pattern": ".{10}c"}
X, DIGITS, AT = {"pattern": "x.{20}"}, {"pattern": "\\d+."}, {"pattern": ".+@.+"}
STRING = {"type": "string"}
BOTH = {"type": "string", **B, "allOf": [C]}


def built(schema: Any) -> CompiledConstraint:
    return compiled("llguidance", ConstraintKind.JSON_SCHEMA, json.dumps(schema))


@pytest.mark.parametrize(
    ("schema", "fits", "differs"),
    [
        (STRING | B | {"minLength": 12, "allOf": [{"allOf": [{"pattern": "^(.{2})*$"}]}]}, "0123456789b!",
         ("0123456789b", "0123456789b!?", "0123456789!b?", "")),
        (STRING | B | {"$ref": "#/$defs/c", "$defs": {"c": C}}, "0123456789bc", ("0123456789b", "012345678bc", "")),
        (STRING | B | {"$ref": "#/$defs/b", "$defs": {"b": {**C, "allOf": [{"$ref": "#/$defs/c"}]}, "c": X}},
         "x123456789bc34567890123", ("x123456789bc34567890", "x123456789b", "")),
        (STRING | B | {"anyOf": [C, {"pattern": "^z"}]}, "0123456789bc", ("0123456789b", "z123456789c", "")),
        ({"type": "object", "allOf": [{"properties": {"x": STRING | B}}, {"properties": {"x": C}, "required": ["x"]}]},
         {"x": "0123456789bc"}, ({"x": "0123456789b"}, {"x": ""}, {})),
        ({"type": "array", "items": STRING | B | {"allOf": [{"allOf": [C]}]}, "minItems": 1}, ["0123456789bc"],
         (["0123456789b"], [""], [])),
        ({"type": ["string", "null"], **DIGITS, "allOf": [X, AT]}, "x1@3456789012345678901",
         ("x123456789012345678901", "x@3456789", 1)),
        ({"type": ["string", "null"], **DIGITS, "allOf": [X, AT]}, None, ("",)),
        (STRING | {"pattern": "^x.{20,}$", "allOf": [DIGITS, {"maxLength": 22}, AT]}, "x1@3456789012345678901",
         ("x1@34567890123456789012", "x1@34567890123456789")),
    ],
)  # fmt: skip
def test_patterns_meet_in_one_string(schema: Any, fits: Any, differs: tuple[Any, ...]) -> None:
    ready = built(schema)
    assert takes(ready, json.dumps(fits))
    assert not [each for each in differs if takes(ready, json.dumps(each))]


def test_no_output_has_a_nul() -> None:
    ready = built(STRING | B | {"$ref": "#/$defs/c", "$defs": {"c": C}})
    assert not any(takes(ready, text) for text in ('""', '"\x00"', r'"\u0000"', r'"\0"', '"0123456789b\x00"'))


def test_a_property_that_nothing_can_be_is_left_out() -> None:
    never = STRING | {"pattern": "^a", "allOf": [{"pattern": "^b"}]}
    hard = STRING | B | {"$ref": "#/$defs/c"}
    ready = built({"type": "object", "properties": {"x": hard, "y": never}, "required": ["x"], "$defs": {"c": C}})
    assert takes(ready, '{"x": "0123456789bc"}') and not takes(ready, '{"x": "0123456789bc", "y": "a"}')
    with pytest.raises(GrammarError):
        built({"type": "object", "properties": {"x": hard, "y": never}, "required": ["x", "y"], "$defs": {"c": C}})


def test_what_becomes_too_complex_in_its_first_tokens_is_refused() -> None:
    patterns = ("(a|b).{10}", "c.{11}", ".{11}b", "e.{10}f")
    with pytest.raises(GrammarError, match="Unable to determine"):
        built(STRING | {"allOf": [{"pattern": each} for each in patterns]})


def test_a_proof_is_a_text_that_matches_all() -> None:
    patterns = [
        f"^(?:{write(found_within(each))})$" for each in (".{10}b", ".{10}c", "^[^x]*$", "é.?a", "a$", "^.{4,9}$")
    ]
    proofs, found = Proofs(), 0
    for size in (1, 2, 3):
        for each in combinations(patterns, size):
            if (text := proofs.text(each)) is not None:
                found += 1
                assert all(re.fullmatch(pattern, text) for pattern in each), (each, text)
    assert found == 32  # the others need ten characters before b or c, and at most nine


def test_a_schema_whose_merged_parts_grow_without_end_stays_as_it_is() -> None:
    def doubled(first: str, second: str) -> Any:
        part = {"allOf": [{"$ref": f"#/$defs/{first}"}, {"$ref": f"#/$defs/{second}"}]}
        return {"type": "object", "properties": {"x": part, "y": BOTH}}

    grown = {"allOf": [{"$ref": "#/$defs/p"}, {"$ref": "#/$defs/q"}]}
    document = read_value(grown | {"$defs": {"p": doubled("p", "q"), "q": doubled("q", "p")}}, "llguidance")
    before = json.dumps(document.root)
    prove_patterns(document, lambda patterns, text: True)
    assert json.dumps(document.root) == before
