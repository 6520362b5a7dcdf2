"""Options that are said to exclude each other do, and values are judged as a validator judges them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ramet.runtime.grammar.instances import holds
from ramet.runtime.grammar.one_of import Disjoint

NUMBERS = st.integers(-3, 3) | st.sampled_from([0.5, 1.0, 2.5])
TEXTS = st.text("ab", max_size=3)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])


def some(**keywords: st.SearchStrategy) -> st.SearchStrategy:
    """A schema with any of these keywords."""
    return st.fixed_dictionaries({}, optional=keywords)


LEAVES = st.one_of(
    some(type=TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True)),
    some(const=VALUES),
    some(enum=st.lists(VALUES, min_size=1, max_size=3)),
    some(minimum=NUMBERS, exclusiveMaximum=NUMBERS, maximum=NUMBERS, exclusiveMinimum=NUMBERS, multipleOf=st.just(2)),
    some(type=st.just("string"), minLength=st.integers(0, 2), maxLength=st.integers(0, 2), pattern=st.just("^(?:a*)$")),
    st.booleans(),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        some(
            type=st.just("object"),
            properties=st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            required=st.lists(st.sampled_from("ab"), unique=True),
            additionalProperties=inner,
            maxProperties=st.integers(0, 2),
        ),
        some(
            type=st.just("array"), items=inner, prefixItems=st.lists(inner, min_size=1, max_size=2), minItems=st.just(1)
        ),
        some(anyOf=st.lists(inner, min_size=1, max_size=2), allOf=st.lists(inner, min_size=1, max_size=2)),
        some(patternProperties=st.dictionaries(st.just("^(?:a)$"), inner, max_size=1)),
    ),
    max_leaves=6,
)


@given(SCHEMAS, VALUES)
def test_values_are_judged_as_a_validator_judges_them(schema, value):
    assert holds(schema, value, {}) == Draft202012Validator(schema).is_valid(value)


@given(SCHEMAS, SCHEMAS, st.lists(VALUES, max_size=20))
def test_no_value_keeps_to_two_schemas_that_exclude_each_other(a, b, values):
    if Disjoint({}).pair(a, b):
        constants = [part["const"] for part in (a, b) if isinstance(part, dict) and "const" in part]
        assert not any(holds(a, value, {}) and holds(b, value, {}) for value in values + constants)


@pytest.mark.parametrize(
    ("a", "b", "excluded"),
    [
        ({"type": "integer"}, {"type": "string"}, True),
        ({"type": "integer"}, {"type": "number"}, False),
        ({"const": 1}, {"const": 1.0}, False),
        ({"const": 1}, {"const": True}, True),
        ({"enum": ["a", "b"]}, {"enum": ["c"]}, True),
        ({"minimum": 3, "type": "number"}, {"exclusiveMaximum": 3, "type": "number"}, True),
        ({"minimum": 3, "type": "number"}, {"maximum": 3, "type": "number"}, False),
        ({"type": "string", "maxLength": 2}, {"type": "string", "minLength": 3}, True),
        ({"$ref": "#/a"}, {"type": "null"}, True),
        ({"$ref": "#/a"}, {"$ref": "#/a"}, False),
        (
            {"type": "object", "properties": {"k": {"const": "x"}}, "required": ["k"]},
            {"type": "object", "properties": {"k": {"const": "y"}}},
            True,
        ),
        (
            {"type": "object", "properties": {"k": {"const": "x"}}},
            {"type": "object", "properties": {"k": {"const": "y"}}},
            False,
        ),
        (
            {"type": "object", "required": ["a"]},
            {"type": "object", "properties": {"b": {}}, "additionalProperties": False},
            True,
        ),
        ({"type": "boolean"}, {"const": True}, False),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, {"type": ["integer", "array"]}, True),
    ],
)
def test_which_options_exclude_each_other(a, b, excluded):
    assert (
        Disjoint({"#/a": {"type": "integer"}}).pair(a, b)
        == excluded
        == Disjoint({"#/a": {"type": "integer"}}).pair(b, a)
    )
