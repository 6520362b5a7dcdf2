"""What the pattern of arguments in Python allows their schema allows; what it cannot say of a schema is named."""

import re
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from samples import examples

from ramet.runtime.intake.parsers.python_arguments import patterns_of
from ramet.runtime.intake.parsers.tools import Offer, Unwritable
from tests.fakes.effort import Compared


def pattern_of(offer: Offer) -> str:
    (pattern,) = patterns_of([offer])
    return pattern


POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "number"}}, "required": ["y"]}
SCHEMAS: list[dict[str, Any]] = [
    {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "boolean"}}},
    {"properties": {"a": {"type": "null"}, "b": {"type": ["integer", "string"]}, "c": {}}, "required": ["b"]},
    {"properties": {"a": {"enum": ["x", 'q"', "it's", "a\nb", 1, 1.5, None, True, [1, "("], {"k": "."}]}, "b": True},
        "required": ["a", "b"]},
    {"properties": {"a": {"type": "string", "enum": ["x", 5]}, "b": {"const": "a|b"}}, "required": ["b", "a"]},
    {"properties": {"p": {"$ref": "#/$defs/p"}, "q": {"type": "array", "items": {"$ref": "#/$defs/p"}}},
        "required": ["q"], "$defs": {"p": POINT}},
    {"properties": {"o": {"anyOf": [POINT, {"type": "null"}]}}, "required": ["o"], "additionalProperties": False},
    {"properties": {"o": {"type": "object", "additionalProperties": {"type": "number"}}, "e": {
        "type": "object", "additionalProperties": False}}, "required": ["o", "e"]},
    {"description": "d", "properties": {"a": {"type": "array", "title": "t", "default": []}}, "required": ["a"]},
    {},
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
@examples(30, 500)
@given(st.data())
def test_arguments_of_the_pattern_keep_to_the_schema(schema: dict[str, Any], data: st.DataObject) -> None:
    text = data.draw(st.from_regex(pattern_of(Offer("f", {**schema, "type": "object"})), fullmatch=True))
    Draft202012Validator(schema).validate(eval(f"dict({text})"))


@pytest.mark.parametrize("schema, text, allowed", [
    (SCHEMAS[0], "", True), (SCHEMAS[0], 'a="x", c=True', True), (SCHEMAS[0], "b=-10, c=False", True),
    (SCHEMAS[0], 'c=True, a="x"', False), (SCHEMAS[0], 'a="x",', False), (SCHEMAS[0], "a='x'", False),
    (SCHEMAS[0], 'a="é\\n\\"日"', True), (SCHEMAS[0], 'a="\n"', False), (SCHEMAS[0], "b=01", False),
    (SCHEMAS[1], "", False), (SCHEMAS[1], "a=None, b=3", True), (SCHEMAS[1], 'b=3, c={"k": [1, {}]}', False),
    (SCHEMAS[1], 'b=3, c={"k": [1, None]}', True), (SCHEMAS[3], "a='x', b='a|b'", True),
    (SCHEMAS[4], "q=[{'y': 1.5}, {'x': 1, 'y': 2}]", True), (SCHEMAS[8], "", True),
])  # fmt: skip
def test_the_pattern_is_what_python_would_write(schema: dict[str, Any], text: str, allowed: bool) -> None:
    assert bool(re.fullmatch(pattern_of(Offer("f", schema)), text)) == allowed


LOOP = {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {}]}}}
TWICE: dict[str, Any] = {"$defs": {"d0": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/d29"}}}
for level in range(1, 30):
    part = {"$ref": f"#/$defs/d{level - 1}"}
    TWICE["$defs"][f"d{level}"] = {"properties": {"x": part, "y": part}, "type": "object", "required": ["x", "y"]}


@pytest.mark.parametrize("schema, fact", [
    ({"properties": {"a": {"type": "string", "maxLength": 3}}}, "properties.a.maxLength is set"),
    ({"properties": {"a": {"items": {"pattern": "x"}}}}, "properties.a.items.pattern is set"),
    ({"minProperties": 1}, "minProperties is set"), ({"anyOf": [{}]}, "anyOf is set"),
    ({"properties": {"a": {"oneOf": [{}]}}}, "properties.a.oneOf is set"),
    ({"properties": {"a": False}}, "properties.a is a schema that allows nothing"),
    ({"properties": ["x"]}, "properties is not an object"),
    ({"properties": {"a": {"type": 5}}}, "properties.a.type is 5"),
    ({"properties": {"a": {"type": [[]]}}}, "properties.a.type is []"),
    ({"properties": {"a b": {}}}, "properties has 'a b', which is not a name"),
    ({"required": ["a"]}, "required names 'a', which is not a property"), ({"required": "a"}, "required is not a list"),
    ({"properties": {"a": {"enum": []}}}, "properties.a.enum has no value"),
    ({"properties": {"a": {"type": "string", "const": 5}}}, "properties.a.const has no value of the type"),
    (
        {"properties": {"a": {"enum": [0.5, Decimal("0.12345678901234567890")]}}},
        "properties.a.enum has the number 0.12345678901234567890, which a double rounds",
    ),
    ({"properties": {"a": {"$ref": "http://x"}}}, "properties.a.$ref is 'http://x', which leads nowhere"),
    ({"properties": {"a": {"$ref": 5}}}, "properties.a.$ref is 5, which leads nowhere"),
    (LOOP, "which leads to itself"), (TWICE, "comes to patterns of more than 262144 characters"),
    ({"properties": {f"p{i}": {} for i in range(100)}}, "comes to patterns of more than"),
    ({"properties": {f"p{i}": {"type": "null"} for i in range(3000)}}, "properties are too many to be all left out"),
])  # fmt: skip
def test_what_the_pattern_cannot_say_is_named(schema: dict[str, Any], fact: str) -> None:
    with pytest.raises(Unwritable) as caught:
        pattern_of(Offer("f", schema))
    assert fact in caught.value.fact and caught.value.name == "f" and len(caught.value.fact) < 350


def test_many_tools_come_to_no_more_than_one() -> None:
    offers = [Offer(f"f{i}", {"properties": {"a": {}, "b": {}}, "required": ["a"]}) for i in range(1024)]
    with pytest.raises(Unwritable, match="with those before it, comes to patterns of more than 262144"):
        patterns_of(offers)


def test_required_properties_are_not_searched_for_each_property() -> None:
    names = [f"p{i}" for i in range(300)]
    schema = {"type": "object", "properties": {name: {"type": "null"} for name in names}}
    Compared.num = 0
    patterns_of([Offer("f", {**schema, "required": [Compared(name) for name in names]})])
    assert Compared.num <= 4 * len(names)


def test_members_of_a_schema_that_stayed_json_are_read() -> None:
    properties = msgspec.Raw(b'{"a":{"const":12345678901234567890}}')
    assert pattern_of(Offer("f", {"properties": properties, "required": ["a"]})) == "a=12345678901234567890"


def test_a_long_chain_of_references_is_refused_in_words() -> None:
    chain: dict[str, Any] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(3000)} | {"d3000": {"type": "null"}}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "required": ["a"], "$defs": chain}
    with pytest.raises(Unwritable, match="follows too many references inside one another"):
        patterns_of([Offer("f", schema)])
