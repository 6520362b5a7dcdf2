"""Keywords without effect do not make a schema refused, and some keywords are replaced by plainer ones.

Each schema is paired with its simpler form: a validator finds no difference, and every backend gets that form.
"""

import json
from typing import Any

import pytest
from constrained import NAMES, compiled, takes
from grammar_cases.probes import VALUES
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator
from samples import examples

from ramet.ipc.spec import ConstraintKind
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.json_schema import read_value
from ramet.runtime.grammar.keywords import UNSUPPORTED
from ramet.runtime.grammar.plain_schema import ALL, admitted, plain

INT, STR, NULL, NONE = {"type": "integer"}, {"type": "string"}, {"type": "null"}, {"not": {}}
ARRAY, OBJECT = {"type": "array", "items": INT}, {"type": "object", "additionalProperties": INT}
CLOSED = {"type": "object", "properties": {"a": INT, "b": STR}, "additionalProperties": False}
OPEN = {"type": "object", "properties": {"a": INT, "b": STR}}
NEEDS = CLOSED | {"required": ["a"]}
ANY_NAME = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}

SAME: list[tuple[Any, Any]] = [
    # names of properties
    (OBJECT | {"propertyNames": STR}, OBJECT),
    (OBJECT | {"propertyNames": True}, OBJECT),
    (OBJECT | {"propertyNames": {"title": "A name", "type": ["string", "null"], "minLength": 0}}, OBJECT),
    (OBJECT | {"propertyNames": {"pattern": ".*", "minimum": 7}}, OBJECT),
    (OBJECT | {"propertyNames": {"enum": ["a", "b"]}},
     {"type": "object", "additionalProperties": False, "properties": {"a": INT, "b": INT}}),
    (OPEN | {"propertyNames": {"const": "a", "type": "string"}},
     {"type": "object", "properties": {"a": INT}, "additionalProperties": False}),
    (CLOSED | {"propertyNames": {"enum": ["b", "c"]}},
     {"type": "object", "properties": {"b": STR}, "additionalProperties": False}),
    # items that are all different
    (ARRAY | {"uniqueItems": True, "maxItems": 1}, ARRAY | {"maxItems": 1}),
    ({"type": "array", "prefixItems": [INT], "items": False, "uniqueItems": True},
     {"type": "array", "prefixItems": [INT], "items": False}),
    (ARRAY | {"uniqueItems": True, "maxItems": 0}, ARRAY | {"maxItems": 0}),
    # what is not evaluated
    (OPEN | {"unevaluatedProperties": False}, CLOSED),
    (OPEN | {"unevaluatedProperties": STR}, OPEN | {"additionalProperties": STR}),
    (OPEN | ANY_NAME | {"unevaluatedProperties": False}, CLOSED | ANY_NAME),
    (CLOSED | {"unevaluatedProperties": False}, CLOSED),
    (OPEN | {"allOf": [{"properties": {"c": INT}}], "unevaluatedProperties": True},
     OPEN | {"allOf": [{"properties": {"c": INT}}]}),
    ({"type": "array", "prefixItems": [INT], "unevaluatedItems": False},
     {"type": "array", "prefixItems": [INT], "items": False}),
    (ARRAY | {"unevaluatedItems": False}, ARRAY),
    # not
    (INT | {"not": False}, INT),
    (INT | {"not": STR}, INT),
    (INT | {"not": {"type": "string", "minLength": 2}}, INT),
    ({"type": ["integer", "null"], "not": NULL}, {"type": ["integer"]}),
    ({"type": ["number", "string"], "not": {"type": "number", "title": "x"}}, {"type": ["string"]}),
    (CLOSED | {"properties": {"a": INT, "b": NONE}}, CLOSED | {"properties": {"a": INT, "b": False}}),
    ({"type": "array", "items": {"not": True}}, {"type": "array", "items": False}),
    # conditions
    (INT | {"if": {"minimum": 3}}, INT),
    (INT | {"then": {"minimum": 3}, "else": False}, INT),
    (INT | {"if": {"minimum": 3}, "then": {}, "else": True}, INT),
    (INT | {"if": {"minimum": 3}, "then": {"minLength": 3}}, INT),
    # what an array contains
    (ARRAY | {"contains": {"const": 1}, "minContains": 0}, ARRAY),
    (ARRAY | {"minContains": 2, "maxContains": 3}, ARRAY),
    (ARRAY | {"contains": {}}, ARRAY | {"minItems": 1}),
    (ARRAY | {"contains": True, "minContains": 2, "maxContains": 3, "maxItems": 2},
     ARRAY | {"minItems": 2, "maxItems": 2}),
    # what depends on a property
    (CLOSED | {"dependentRequired": {}, "dependentSchemas": {}, "dependencies": {}}, CLOSED),
    (CLOSED | {"dependentRequired": {"a": [], "b": ["b"], "c": ["a"]}}, CLOSED),
    (NEEDS | {"dependentRequired": {"b": ["a"]}}, NEEDS),
    (NEEDS | {"dependentRequired": {"a": ["b"]}}, CLOSED | {"required": ["a", "b"]}),
    (CLOSED | {"dependentSchemas": {"a": True, "b": {"minLength": 3}}}, CLOSED),
    (NEEDS | {"dependentSchemas": {"a": {"required": ["b"]}}}, NEEDS | {"allOf": [{"required": ["b"]}]}),
    # of other types
    (STR | {"uniqueItems": True, "contains": INT, "propertyNames": {"pattern": "^a"}}, STR),
    (STR | {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": INT}, "maxProperties": 1}, STR),
    (STR | {"unevaluatedProperties": False, "unevaluatedItems": False, "multipleOf": 7, "minProperties": 5}, STR),
    ({"enum": ["a", "ab"], "uniqueItems": True}, {"enum": ["a", "ab"]}),
    (INT | {"pattern": r"a(?=b)", "format": "date"}, INT),
    # numbers
    (INT | {"multipleOf": 1}, INT),
    (INT | {"multipleOf": 0.5}, INT),
    (INT | {"multipleOf": 1e-30}, INT),
    (INT | {"multipleOf": 5e-324}, INT),
    (INT | {"exclusiveMinimum": False, "exclusiveMaximum": False}, INT),
    (INT | {"format": "int32"}, INT | {"minimum": -(2**31), "maximum": 2**31 - 1}),
    (INT | {"format": "uint8", "minimum": 3}, INT | {"minimum": 3, "maximum": 255}),
    ({"type": "number", "format": "double"}, {"type": "number"}),
    (STR | {"format": "password"}, STR),
    # empty ones and zeros
    (CLOSED | {"patternProperties": {}, "allOf": [], "minProperties": 0, "nullable": False}, CLOSED),
    (NEEDS | {"minProperties": 1, "maxProperties": 2}, NEEDS),
    (ARRAY | {"prefixItems": [], "minItems": 0}, ARRAY),
    (STR | {"minLength": 0, "pattern": "^a"}, STR | {"pattern": "^a"}),
    # names of places
    (INT | {"$anchor": "here", "$dynamicAnchor": "there"}, INT),
    (CLOSED | {"properties": {"a": INT | {"$id": "http://x/y"}, "b": STR}}, CLOSED),
]  # fmt: skip
POOL = [
    *VALUES, [1, 1], [1, 1, 1], [2, 3], {"b": 1}, {"a": None}, {"b": "x", "c": 2}, {"a": 1, "c": 2}, -(2**31), 2**31,
    255, 256, 300, "x" * 4,
]  # fmt: skip
SEEN = {"int32": (-(2**31), 2**31 - 1), "uint8": (0, 255)}  # formats that the validator ignores


def valid(schema: Any, value: Any) -> bool:
    if isinstance(schema, dict) and schema.get("format") in SEEN and isinstance(value, int) and type(value) is not bool:
        least, most = SEEN[schema["format"]]
        if not least <= value <= most:
            return False
    if isinstance(schema, dict) and ("exclusiveMinimum" in schema or "prefixItems" in schema or "allOf" in schema):
        schema = {k: v for k, v in schema.items() if v is not False or "exclusive" not in k}
        schema = {k: v for k, v in schema.items() if v != [] or k not in ("prefixItems", "allOf")}
    kind = Draft7Validator if isinstance(schema, dict) and "dependencies" in schema else Draft202012Validator
    return bool(kind(schema).is_valid(value))


@pytest.mark.parametrize(("schema", "same"), SAME, ids=lambda schema: json.dumps(schema)[:60])
def test_what_says_nothing_is_left_out(schema: Any, same: Any) -> None:
    assert [valid(schema, value) for value in POOL] == [valid(same, value) for value in POOL]
    for backend, refused in UNSUPPORTED.items():
        if refused.isdisjoint(same):
            assert read_value(schema, backend).root == read_value(same, backend).root


REFUSED = [  # keyword in the error, schema in which the keyword has an effect
    ("propertyNames", OBJECT | {"propertyNames": {"minLength": 2}}),
    ("propertyNames", OBJECT | {"propertyNames": {"enum": ["a", "b"], "pattern": "^a"}}),
    ("propertyNames", OBJECT | {"propertyNames": INT}),
    ("propertyNames", OBJECT | {"patternProperties": {"^a": STR}, "propertyNames": {"enum": ["a"]}}),
    ("uniqueItems", ARRAY | {"uniqueItems": True, "maxItems": 2}),
    ("uniqueItems", {"uniqueItems": True}),
    ("unevaluatedProperties", OPEN | {"allOf": [{"properties": {"c": INT}}], "unevaluatedProperties": False}),
    ("unevaluatedProperties", {"$ref": "#/$defs/o", "$defs": {"o": OPEN}, "unevaluatedProperties": False}),
    ("unevaluatedProperties", OPEN | {"if": {"properties": {"c": INT}}, "unevaluatedProperties": False}),
    ("unevaluatedItems", {"contains": STR, "minContains": 0, "unevaluatedItems": False}),
    ("contains", ARRAY | {"contains": {"const": 1}, "minContains": 0, "maxContains": 1}),
    ("contains", ARRAY | {"contains": INT | {"minimum": 2}}),
    ("not", {"type": "number", "not": INT}),
    ("not", INT | {"not": {"const": 3}}),
    ("not", STR | {"not": {"minLength": 2}}),
    ("if", INT | {"if": {"minimum": 3}, "then": {"maximum": 9}}),
    ("then", {"then": {"maximum": 9}, "type": "integer", "if": {"minimum": 3}}),
    ("if", {"type": "number", "if": {"minimum": 3}, "else": INT}),
    ("dependentRequired", CLOSED | {"dependentRequired": {"a": ["b"]}}),
    ("dependentSchemas", CLOSED | {"dependentSchemas": {"a": {"required": ["b"]}}}),
    ("dependencies", CLOSED | {"dependencies": {"a": ["b"]}}),
    ("$id", {"type": "array", "items": {"$id": "http://x/y", "items": {"$ref": "#/$defs/x"}, "$defs": {"x": INT}}}),
    ("format", INT | {"format": "unheard-of"}),
    ("propertyNames", {"propertyNames": 5}),
    ("dependentRequired", CLOSED | {"dependentRequired": {"a": "b"}}),
]  # fmt: skip


@pytest.mark.parametrize(("keyword", "schema"), REFUSED, ids=lambda each: json.dumps(each)[:60])
def test_what_says_something_is_refused_by_name(keyword: str, schema: Any) -> None:
    for backend in UNSUPPORTED:
        with pytest.raises(GrammarError) as error:
            read_value(schema, backend)
        assert f"/{keyword}" in error.value.fact


@pytest.mark.parametrize("schema", [NONE, {"not": True, "type": "string"}, STR | {"not": STR | {"title": "x"}}, False])
def test_a_schema_of_nothing_is_refused(schema: Any) -> None:
    with pytest.raises(GrammarError, match="which nothing is valid for"):
        read_value(schema, "llguidance")


@pytest.mark.parametrize("name", NAMES)
def test_schemas_as_libraries_write_them_are_taken(name: str) -> None:
    """Taken from zod 4: record, set-like array, never, loose and strict objects. From schemars: numbers."""
    record = {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": INT}
    by_name = {"type": "object", "propertyNames": {"type": "string", "enum": ["a", "b"]}, "additionalProperties": INT}
    strict = OPEN | {"required": ["a"], "unevaluatedProperties": False}
    never = {"type": "object", "properties": {"a": INT, "z": NONE}, "required": ["a"], "additionalProperties": False}
    counted = {"type": "integer", "format": "uint32", "minimum": 0}
    for schema, output, other in (
        (record, '{"x": 1}', '{"x": "1"}'),
        (by_name, '{"a": 1, "b": 2}', '{"c": 1}'),
        (strict, '{"a": 1}', '{"a": 1, "c": 1}'),
        (never, '{"a": 1}', '{"a": 1, "z": 1}'),
        (counted, "4294967295", "4294967296"),
    ):
        ready = compiled(name, ConstraintKind.JSON_SCHEMA, json.dumps(schema))
        assert takes(ready, output) and not takes(ready, other)


KEYWORDS = sorted(
    {keyword for schema, _ in SAME for keyword in schema if keyword != "dependencies"} - {"nullable", "$id"}
)
SCHEMA_PARTS = st.sampled_from([True, False, {}, INT, STR, OBJECT, CLOSED, {"minimum": 2}, {"required": ["a"]}, NONE])
VALUES_OF = st.one_of(
    SCHEMA_PARTS,
    st.integers(0, 2),
    st.sampled_from([["a"], ["a", "b"], [INT], {"a": INT}, {"a": ["b"]}, "string", "array"]),
)


@given(st.dictionaries(st.sampled_from(KEYWORDS), VALUES_OF, min_size=1, max_size=4))
@examples(200, 5000)
def test_any_schema_means_the_same_in_plainer_words(schema: dict[str, Any]) -> None:
    """Schemas are drawn from all that the validator's meta-schema allows."""
    if not Draft202012Validator(Draft202012Validator.META_SCHEMA).is_valid(schema):
        return
    plainer = plain(schema)
    for value in POOL:
        assert Draft202012Validator(schema).is_valid(value) == Draft202012Validator(plainer).is_valid(value), value
    kinds = admitted(schema)
    assert kinds <= ALL
    for value in POOL:
        kind = Draft202012Validator.TYPE_CHECKER
        if any(kind.is_type(value, each) for each in kinds):
            assert Draft202012Validator(schema).is_valid(value), value
