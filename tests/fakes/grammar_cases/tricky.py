"""Small schemas in which keywords meet, each with a shortest value: what implementations get wrong.

A backend may refuse one for a keyword on its list; what it writes under the others must be valid.
"""

from typing import Any

DIGITS = {"type": "integer", "minimum": 0, "maximum": 9}
NULL = {"type": "null"}
CLOSED = {"additionalProperties": False}

TRICKY: tuple[tuple[Any, ...], ...] = (  # schema, shortest value, what other values may need to end
    # keywords that some or all backends cannot enforce
    ({"type": "array", "items": DIGITS, "maxItems": 3, "uniqueItems": True}, []),
    ({"type": "array", "items": {"type": "boolean"}, "contains": {"const": True}, "maxItems": 3}, [True]),
    ({"type": "array", "items": {"enum": [1, 2]}, "contains": {"const": 1}, "minContains": 2, "maxItems": 4}, [1, 1]),
    ({**DIGITS, "not": {"const": 0}}, 1),
    ({"not": {"type": ["string", "object", "array"]}}, 0),
    ({"if": {"type": "integer"}, "then": {"minimum": 5}, "else": {"type": "string", "maxLength": 2}}, 5),
    ({"type": "object", "properties": {"a": NULL, "b": NULL}, "dependentRequired": {"a": ["b"]}, **CLOSED}, {}),
    ({"type": "object", "properties": {"a": NULL}, "dependentSchemas": {"a": {"minProperties": 2}}}, {}),
    ({"type": "object", "propertyNames": {"maxLength": 2}, "additionalProperties": NULL}, {}),
    ({"type": "object", "properties": {"a": NULL}, "unevaluatedProperties": False}, {}),
    ({"type": "array", "prefixItems": [NULL], "unevaluatedItems": False}, []),
    ({"type": "string", "format": "iri"}, "a:"),
    ({"type": "string", "pattern": "^(?!a)[a-c]{2}$"}, "ba"),
    ({"type": "string", "pattern": "\\bab\\b"}, "ab"),
    # one of several
    ({"oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 10}]}, 11),
    ({"oneOf": [{"type": "number", "multipleOf": 2}, {"type": "number", "multipleOf": 3}]}, 2),
    ({"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 5}]}, 0),
    ({"oneOf": [{"type": "string", "maxLength": 3}, {"type": "string", "minLength": 3, "maxLength": 5}]}, ""),
    ({"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, 1),
    ({"oneOf": [{"type": "object", "properties": {"a": DIGITS}}, {"type": "object", "required": ["b"]}]}, {}),
    ({"type": "string", "anyOf": [{"minLength": 3, "maxLength": 4}, {"maxLength": 1}]}, ""),
    ({"type": "object", "properties": {"a": NULL, "b": NULL}, **CLOSED,
      "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": None}),
    ({"type": "integer", "anyOf": [{"maximum": -1}, {"minimum": 100}], "multipleOf": 7}, -7),
    # all of several
    ({"allOf": [{"enum": [1, 2, "a"]}, {"enum": [2, "a", None]}]}, 2),
    ({"allOf": [{"type": ["integer", "string"]}, {"type": ["integer", "null"]}]}, 0),
    ({"allOf": [{"type": "number", "multipleOf": 4}, {"multipleOf": 6}], "minimum": 1, "maximum": 100}, 12),
    ({"allOf": [{"type": "string", "pattern": "^a"}, {"pattern": "z$"}], "maxLength": 6}, "az"),
    ({"allOf": [{"type": "array", "prefixItems": [DIGITS], "items": False}, {"minItems": 1}]}, [0]),
    ({"allOf": [{"type": "array", "items": {"minimum": 3}}, {"items": {"type": "integer", "maximum": 4}}],
      "maxItems": 2}, []),
    ({"allOf": [{"type": "object", "properties": {"a": {"minimum": 3}}},
                {"properties": {"a": DIGITS}, "required": ["a"]}]}, {"a": 3}),
    ({"allOf": [{"type": "object", "properties": {"a": DIGITS}, **CLOSED}, {"properties": {"b": DIGITS}}]}, {}),
    ({"allOf": [{"type": "object", "properties": {"a": DIGITS}},
                {"additionalProperties": {"type": ["integer", "null"]}, "required": ["a"]}]}, {"a": 0}),
    ({"allOf": [{"anyOf": [DIGITS, NULL]}, {"anyOf": [{"const": 3}, {"type": "string"}]}]}, 3),
    ({"allOf": [{"oneOf": [DIGITS, NULL]}], "minimum": 8}, 8),
    # a value that is given, and what is said beside it
    ({"type": "integer", "enum": [1, "a", None]}, 1),
    ({"enum": [1, 2, 3, "long enough"], "minimum": 2, "minLength": 3}, 2),
    ({"enum": [[1], [1, 2], []], "minItems": 1}, [1]),
    ({"enum": [{"a": 1}, {"a": 1, "b": 2}], "required": ["b"]}, {"a": 1, "b": 2}),
    ({"const": {"b": [1.5, {"ü": "\n"}], "a": False}}, {"b": [1.5, {"ü": "\n"}], "a": False}),
    ({"const": "</s><|im_end|>"}, "</s><|im_end|>"),
    ({"type": "object", "properties": {"<|im_end|>": {"enum": ["<|im_start|>", 1]}}, **CLOSED,
      "required": ["<|im_end|>"]}, {"<|im_end|>": 1}),
    ({"enum": ["a\u2028b", "\x7f", "\ud7ff", "\U0010ffff"]}, "\ud7ff"),
    # without a type, a keyword says nothing of other types
    ({"minimum": 5}, 5), ({"maxLength": 2}, 0), ({"pattern": "^ab?$"}, 0), ({"maxItems": 1}, 0),
    ({"items": DIGITS, "maxItems": 2, "type": ["array", "null"]}, []), ({"format": "date"}, 0),
    ({"required": ["a"], "type": ["object", "null"]}, None), ({"multipleOf": 5, "type": ["integer", "boolean"]}, 0),
    ({"properties": {"a": DIGITS}, "required": ["a"], **CLOSED}, 0),
    # numbers
    ({"type": "integer", "minimum": 0.5, "maximum": 3.5}, 1), ({"type": "integer", "exclusiveMinimum": 1.5}, 2),
    ({"type": "integer", "minimum": 3, "exclusiveMinimum": 3, "maximum": 10, "exclusiveMaximum": 5}, 4),
    ({"type": "integer", "multipleOf": 2.5, "minimum": 1, "maximum": 20}, 5),
    ({"type": "number", "multipleOf": 0.01}, 0),
    ({"type": "integer", "minimum": 9999999999, "maximum": 10000000123}, 9999999999),
    ({"type": "number", "minimum": -0.5, "exclusiveMaximum": 0}, -0.5),
    ({"type": "number", "minimum": 1e-3, "maximum": 0.02}, 0.01),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.1),
    ({"type": "number", "minimum": 1e6, "maximum": 2e6}, 1000000),
    ({"type": "integer", "minimum": -1, "maximum": 1}, 0), ({"type": "number", "minimum": 5, "maximum": 5}, 5),
    # strings
    ({"type": "string", "minLength": 2, "maxLength": 2}, "aa"), ({"type": "string", "maxLength": 0}, ""),
    ({"type": "string", "pattern": "^a|b$"}, "a", "b"), ({"type": "string", "pattern": "^$"}, ""),
    ({"type": "string", "pattern": "^[^a]*$", "maxLength": 4}, ""), ({"type": "string", "pattern": "^.{3}$"}, "aaa"),
    ({"type": "string", "pattern": '^[^"\\\\]{2,5}$'}, "aa"), ({"type": "string", "pattern": '"'}, '"'),
    ({"type": "string", "pattern": "^\\\\\\\\n\\n$"}, "\\\\n\n"),
    ({"type": "string", "pattern": "^(a|b|)$"}, ""), ({"type": "string", "pattern": "^\\u00e9\\x41$"}, "éA"),
    ({"type": "string", "pattern": "^🙂+$", "maxLength": 2}, "🙂"), ({"type": "string", "pattern": "^[🙂-🙅]$"}, "🙂"),
    ({"type": "string", "format": "uuid", "pattern": "^0"}, "00000000-0000-0000-0000-000000000000"),
    ({"type": "string", "format": "date", "maxLength": 10}, "2000-01-01"),
    # objects
    ({"type": "object", "required": ["a", 'b"\n'], "additionalProperties": DIGITS}, {"a": 0, 'b"\n': 0}),
    ({"type": "object", "properties": {"x_a": {"minimum": 3}}, "patternProperties": {"^x_": DIGITS}, **CLOSED}, {}),
    ({"type": "object", "patternProperties": {"^a": DIGITS, "b$": {"minimum": 5}}, **CLOSED}, {}),
    ({"type": "object", "patternProperties": {"^a": False}, "additionalProperties": DIGITS}, {}),
    ({"type": "object", "patternProperties": {"^[ab]$": DIGITS}, "minProperties": 1, **CLOSED}, {"a": 0}),
    ({"type": "object", "additionalProperties": DIGITS, "minProperties": 2, "maxProperties": 2}, {"a": 0, "b": 0}),
    ({"type": "object", "properties": {"a": NULL, "b": NULL, "c": NULL}, **CLOSED, "minProperties": 2},
     {"a": None, "b": None}),
    ({"type": "object", "properties": {"a": NULL, "b": NULL}, "required": ["b"], **CLOSED, "maxProperties": 1},
     {"b": None}),
    ({"type": "object", "properties": {"a": False, "b": NULL}, **CLOSED}, {}),
    # arrays
    ({"type": "array", "prefixItems": [NULL, DIGITS], "items": {"type": "boolean"}, "minItems": 1, "maxItems": 4},
     [None]),
    ({"type": "array", "prefixItems": [NULL, False], "items": True}, []), ({"type": "array", "items": False}, []),
    ({"type": "array", "prefixItems": [NULL, NULL, NULL], "maxItems": 1}, []), ({"type": "array", "maxItems": 0}, []),
    ({"type": "array", "items": {"type": "array", "items": DIGITS, "minItems": 2, "maxItems": 2}, "minItems": 2,
      "maxItems": 2}, [[0, 0], [0, 0]]),
)  # fmt: skip
