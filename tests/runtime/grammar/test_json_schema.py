"""Reading a schema: what is wrong with it is said with its place, before any backend sees it."""

import json
import re

import orjson
import pytest
from constrained import backend

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.formats import FORMATS
from ramet.runtime.grammar.json_schema import read
from ramet.runtime.grammar.keywords import ANNOTATIONS


def nested(depth: int) -> str:
    return '{"items": ' * depth + "{}" + "}" * depth


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not valid JSON"),
        ('{"minimum": NaN}', "NaN is not a JSON number"),
        ("[]", "# is [], must be a schema"),
        ("false", "which nothing is valid for"),
        ('{"type": "objekt"}', '#/type is "objekt", must be one of null'),
        ('{"type": []}', "#/type is [], must be one of null"),
        ('{"properties": {"a/b": {"minLenght": 1}}}', "#/properties/a~1b has the unknown keyword 'minLenght'"),
        (r'{"a\\d": 1}', r"# has the unknown keyword 'a\d'"),
        (r'{"format": "a\\d"}', r"#/format: the format 'a\d' is not enforced"),
        (r'{"$ref": "a\\d"}', r"leads to 'a\d', must begin with #"),
        ('{"minLength": -1}', "#/minLength is -1, must be an integer in [0, 100000]"),
        ('{"minLength": 1.5}', "#/minLength is 1.5, must be an integer"),
        ('{"maxItems": true}', "#/maxItems is true, must be an integer"),
        ('{"maxItems": 100001}', "#/maxItems is 100001, must be an integer"),
        ('{"minimum": "3"}', '#/minimum is "3", must be a number'),
        ('{"exclusiveMinimum": true}', "#/exclusiveMinimum is true, must be a number"),
        ('{"minimum": 9007199254740993}', "must be a number of at most 9007199254740992"),
        ('{"multipleOf": 0}', "#/multipleOf is 0, must be a number in (0,"),
        ('{"required": "a"}', '#/required is "a", must be a list of different strings'),
        ('{"required": ["a", "a"]}', "must be a list of different strings"),
        ('{"enum": []}', "#/enum is [], must be a list of values"),
        ('{"const": 1e400}', "at most 9007199254740992 is enforced exactly"),
        ('{"const": 12345678901234567890}', "at most 9007199254740992 is enforced exactly"),
        ('{"const": 0.12345678901234567890}', "#/const has the number 0.12345678901234567890, which a double rounds"),
        ('{"enum": [0.5, {"a": [3.14159265358979323846]}]}', "#/enum has the number 3.14159265358979323846"),
        ('{"properties": {"a": {"const": -1e-400}}}', "#/properties/a/const has the number -1e-400, which a double"),
        ('{"const": 9007199254740993.0}', "#/const has the number 9007199254740993.0, which a double rounds"),
        ('{"const": 0.' + "3" * 100 + "}", "#/const has the number 0." + "3" * 58 + "..., which a double rounds"),
        ('{"const": "\\ud800"}', "#/const has half a surrogate pair"),
        ('{"anyOf": []}', "#/anyOf is [], must be a list of schemas"),
        ('{"anyOf": [3]}', "#/anyOf/0 is 3, must be a schema"),
        ('{"properties": []}', "#/properties is [], must be an object of schemas"),
        ('{"items": {"pattern": "("}}', "#/items/pattern is not a valid regular expression"),
        ('{"pattern": "(?=a)"}', "#/pattern uses lookahead at offset 0"),
        ('{"patternProperties": {"a\\\\b": {}}}', "#/patternProperties uses the word boundary"),
        ('{"format": "idn-email"}', "#/format: the format 'idn-email' is not enforced"),
        ('{"allOf": [{"not": {"minimum": 2}}]}', "#/allOf/0/not: llguidance does not enforce 'not'"),
        ('{"properties": {"a": {"$id": "x", "items": {"$ref": "#"}}}}', "#/properties/a/$id: llguidance does not"),
        ('{"$ref": "http://x/y"}', "leads to 'http://x/y', must begin with #"),
        ('{"$ref": "#/$defs/a"}', "leads to '#/$defs/a', where there is no schema"),
        ('{"$ref": "#/x-a", "x-a": {}}', "leads to '#/x-a', where there is no schema"),
        ('{"$ref": "#"}', "#: its $ref runs in a circle"),
        (
            '{"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, '
            '"b": {"allOf": [{"$ref": "#/$defs/a"}]}}}',
            "its $ref runs in a circle",
        ),
        (
            '{"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, '
            '"required": ["x"]}}}',
            "#/$defs/a: nothing finite is valid here",
        ),
        ('{"type": "array", "items": {"$ref": "#"}, "minItems": 1}', "#: nothing finite is valid here"),
        ('{"oneOf": [{"type": "integer"}, {"type": "number"}]}', "#/oneOf: its options may overlap"),
        ('{"required": ["a"], "minProperties": 3}', "#/minProperties is 3, at most 2 is enforced"),
        (nested(65), "nested more than 64 deep"),
        ("[" * 100_000, "nested more than"),
        ('{"title": "' + "a" * (1 << 20) + '"}', "at most 1048576 are allowed"),
        ('{"anyOf": [' + "{}," * 20_000 + "{}]}", "more than 20000 parts"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(text, words):
    with pytest.raises(GrammarError, match=re.escape(words)):
        read(text, "llguidance")


def test_the_last_value_of_a_key_that_comes_twice_counts():
    """As in a body: the same schema may be sent as an object or as a text."""
    text = '{"type": "string", "type": "object", "properties": {"a": false, "a": {"type": "null"}}}'
    assert read(text, "llguidance").root == read(orjson.dumps(orjson.loads(text)).decode(), "llguidance").root


@pytest.mark.parametrize(
    "number", ["0.1", "1.10", "1e2", "-0.0", "2.5E-7", "0.30000000000000004", "5e-324", "0.50000000000000000"]
)
def test_a_number_that_a_double_is_may_be_a_constant(number):
    assert read(f'{{"const": {number}}}', "llguidance").root == {"const": float(number)}


@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        ({"minLenght": 1}, "did you mean 'minLength'?"),
        ({"additional_properties": False}, "did you mean 'additionalProperties'?"),
        ({"descripton": "x"}, "did you mean 'description'?"),
        ({"nullable": True}, 'a value that may be null has "type": [..., "null"]'),
        ({"unit": "m"}, "keywords of your own begin with x-"),
        ({"format": "phone"}, f"enforced are {', '.join(sorted(FORMATS))}"),
    ],
)
def test_what_is_unknown_comes_with_what_is_known(schema, hint):
    with pytest.raises(GrammarError) as raised:
        read(json.dumps(schema), "llguidance")
    assert raised.value.hint == hint


@pytest.mark.parametrize(
    "text",
    [
        '{"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}}}}',
        '{"type": "array", "items": {"$ref": "#"}}',
        '{"type": "object", "properties": {"x": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["x"]}',
        '{"$ref": "#/$defs/a%20b~1c", "$defs": {"a b/c": {"type": "integer"}}}',
        nested(64),
    ],
)
def test_recursion_that_comes_to_an_end_is_read(text):
    read(text, "llguidance")


def test_annotations_and_keywords_of_ones_own_do_not_reach_a_backend():
    said = {name: "anything" for name in ANNOTATIONS} | {
        "x-guidance": {"lenient": True},
        "$id": "http://x",
        "type": "null",
    }
    assert read(json.dumps(said), "llguidance").root == {"type": "null"}


def test_a_list_of_items_is_prefix_items():
    assert read('{"items": [{"type": "null"}], "additionalItems": false}', "llguidance").root == {
        "prefixItems": [{"type": "null"}],
        "items": False,
    }


PAIR = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
EMPTY = {"type": "string", "minLength": 3, "maxLength": 2}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (EMPTY, "#: cannot be compiled: Unsatisfiable schema: minLength (3) is greater"),
        ({"type": "object", "properties": {"x/y": EMPTY}, "required": ["x/y"]}, "#/properties/x~1y: cannot"),
        ({"type": "array", "items": {"allOf": [EMPTY]}, "minItems": 1}, "#/items/allOf/0: cannot be compiled"),
        ({"type": "object", "properties": {"n": {"$ref": "#/properties/é~1%25"}, "é/%": {"type": "string"}, "z": EMPTY},
          "required": ["n", "z"]}, "#/properties/z: cannot be compiled: Unsatisfiable schema"),
        ({"type": "object", "properties": {"x": EMPTY}, "patternProperties": {"^a": {"$ref": "#/properties/x"}}},
         "#/patternProperties: llguidance does not enforce a pattern for whose properties nothing is valid"),
        (PAIR | {"minProperties": 1}, "#: has minProperties or maxProperties beside"),
        ({"type": "object", "properties": {"q": {"type": "array", "items": PAIR | {"maxProperties": 1}}}},
         "#/properties/q/items: has minProperties or maxProperties beside"),
        ({"anyOf": [{"$ref": "#/$defs/p"}], "$defs": {"p": PAIR | {"maxProperties": 1}}},
         "#/$defs/p: has minProperties or maxProperties beside"),
        ({"type": "array", "items": {"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b": True}}},
         "#/items: has patternProperties: llguidance enforces"),
    ],
)  # fmt: skip
def test_llguidance_refuses_with_the_place_in_the_schema(schema, words):
    with pytest.raises(GrammarError, match="^" + re.escape(words)):
        backend("llguidance").prepare(Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(schema)), "compact")
    tag = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema}}
    with pytest.raises(GrammarError, match="^#/format/json_schema: " + re.escape(words)):
        backend("llguidance").prepare(Constraint(ConstraintKind.STRUCTURAL_TAG, json.dumps(tag)), "compact")
