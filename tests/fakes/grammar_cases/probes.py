"""For each keyword of JSON Schema: schemas that it decides, and values of which a validator says who is valid."""

from typing import Any

from jsonschema import Draft202012Validator

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
REFUSED = {  # keyword -> a schema in which it says something, and before any other one that is refused
    "not": {"not": {"minimum": 2}}, "if": {"if": INT, "then": False}, "then": {"then": False, "if": INT},
    "else": {"else": False, "if": INT}, "contains": {"contains": INT},
    "uniqueItems": {"uniqueItems": True}, "propertyNames": {"propertyNames": {"minLength": 2}},
    "minContains": {"minContains": 2, "contains": INT}, "maxContains": {"maxContains": 2, "contains": INT},
    "dependentRequired": {"dependentRequired": {"a": ["b"]}}, "dependentSchemas": {"dependentSchemas": {"a": False}},
    "dependencies": {"dependencies": {"a": ["b"]}}, "$dynamicRef": {"$dynamicRef": "#a"},
    "unevaluatedItems": {"unevaluatedItems": False, "$ref": "#"}, "$recursiveRef": {"$recursiveRef": "#"},
    "unevaluatedProperties": {"unevaluatedProperties": False, "$ref": "#"}, "multipleOf": {"multipleOf": 2},
}  # fmt: skip
VALUES = [
    None, True, False, 0, 1, 2, 3, 4, 6, -1, -3, 12, 0.5, 1.5, 2.5, 2.25, 3.75, "", "a", "ab", "abc", "é", "ba b",
    'q"\\\n', "2024-02-29", "2023-02-29", [], [1], [1, 2], [1, "x"], [1, "x", 2], ["x"], [[]], {}, {"a": 1}, {"b": "x"},
    {"a": "x"}, {"a": 1, "b": "x"}, {"a": 1, "b": 2}, {"c": None}, {"c": 1}, {"a": 1, "c": None}, {"a": [1, "x"]},
    {"a": 1, "b": "x", "c": 1},
]  # fmt: skip


def is_valid(schema: Any, value: Any) -> bool:
    checker = Draft202012Validator.FORMAT_CHECKER
    return bool(Draft202012Validator(schema, format_checker=checker).is_valid(value))
