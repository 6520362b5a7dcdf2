"""The keywords of JSON Schema: what their values look like, and which of them each backend enforces exactly.

What is on no list of a backend is refused by name: an output that only seems to be checked is worse than none.
"""

from ramet.runtime.grammar.base import BackendName


def words(*lines: str) -> frozenset[str]:
    return frozenset(word for line in lines for word in line.split())


ANNOTATIONS = words(
    "$comment $schema $vocabulary title description default examples deprecated readOnly writeOnly "
    "contentEncoding contentMediaType contentSchema",
    "$anchor $dynamicAnchor $recursiveAnchor",  # names of places: no reference leads to one by its name
    "discriminator example externalDocs xml",  # OpenAPI's; Pydantic writes the first beside `oneOf`
)  # say nothing about what is valid
VALUES = {
    "schema": "additionalProperties propertyNames items contains not if then else unevaluatedItems "
    "unevaluatedProperties additionalItems",
    "schemas": "anyOf oneOf allOf prefixItems",
    "map of schemas": "properties patternProperties $defs definitions dependentSchemas",
    "count": "minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains",
    "number": "minimum maximum exclusiveMinimum exclusiveMaximum",
    "positive number": "multipleOf",
    "string": "format $ref $dynamicRef $recursiveRef $id id",
    "pattern": "pattern",
    "names": "required",
    "flag": "uniqueItems",
    "map of names": "dependentRequired",
    "map": "dependencies",
    "type": "type",
    "values": "enum",
    "value": "const",
}
SHAPES = {keyword: shape for shape, keywords in VALUES.items() for keyword in keywords.split()}
KEYWORDS = frozenset(SHAPES)
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

# What no backend enforces. Each list is checked against a validator by tests/runtime/grammar/test_keywords.py.
NOWHERE = words(
    "not if then else contains minContains maxContains uniqueItems propertyNames dependentRequired "
    "dependentSchemas dependencies unevaluatedItems unevaluatedProperties $dynamicRef $recursiveRef $id id"
)
UNSUPPORTED: dict[BackendName, frozenset[str]] = {
    "llguidance": NOWHERE,
    "xgrammar": NOWHERE | {"multipleOf"},
    "outlines": NOWHERE | {"multipleOf"},
}
