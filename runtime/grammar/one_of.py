"""`oneOf` as `anyOf`, where its options exclude each other: no backend counts how many of them a value keeps to.

Only what is certain counts: different types, constants, ranges, or a required property that no value fits in both.
"""

import json
from collections.abc import Mapping
from typing import Any

Schema = bool | dict[str, Any]
ALL_TYPES = frozenset(("null", "boolean", "number", "string", "array", "object"))
MAX_DEPTH = 8
RANGES = (("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"))


class Disjoint:
    """Whether two schemas exclude each other. `targets` are the schemas that references lead to, by reference."""

    def __init__(self, targets: Mapping[str, Schema]) -> None:
        self.targets = targets

    def all(self, options: list[Schema]) -> bool:
        return all(self.pair(a, b) for i, a in enumerate(options) for b in options[i + 1 :])

    def pair(self, a: Schema, b: Schema, depth: int = 0) -> bool:
        if a is False or b is False:
            return True
        if depth > MAX_DEPTH or a is True or b is True:
            return False
        for one, other in ((a, b), (b, a)):
            if "$ref" in one and self.pair(self.targets[one["$ref"]], other, depth + 1):
                return True
            if any(self.pair(part, other, depth + 1) for part in one.get("allOf", ())):
                return True
            for keyword in ("anyOf", "oneOf"):
                if keyword in one and all(self.pair(part, other, depth + 1) for part in one[keyword]):
                    return True
        types = types_of(a) & types_of(b)
        return all(self.within_type(name, a, b, depth) for name in types)

    def within_type(self, name: str, a: dict[str, Any], b: dict[str, Any], depth: int) -> bool:
        """No value of this type keeps to both."""
        first, second = values_of(a, name), values_of(b, name)
        if first is not None and second is not None:
            return not {*map(canonical, first)} & {*map(canonical, second)}
        match name:
            case "number":
                return not overlapping(number_range(a, first), number_range(b, second))
            case "string":
                return not overlapping(size_range(a, first, *RANGES[0]), size_range(b, second, *RANGES[0]))
            case "array":
                return not overlapping(size_range(a, first, *RANGES[1]), size_range(b, second, *RANGES[1]))
            case "object":
                return self.objects(a, b, depth) or self.objects(b, a, depth)
        return False

    def objects(self, a: dict[str, Any], b: dict[str, Any], depth: int) -> bool:
        """Some property that `a` requires has no value, or no place, in both."""
        for name in a.get("required", ()):
            properties = b.get("properties", {})
            if name not in properties and "patternProperties" in b:
                continue
            theirs = properties.get(name, b.get("additionalProperties", True))
            if self.pair(a.get("properties", {}).get(name, True), theirs, depth + 1):
                return True
        return False


def types_of(schema: dict[str, Any]) -> frozenset[str]:
    names = schema.get("type", ALL_TYPES)
    found = frozenset("number" if n == "integer" else n for n in ([names] if isinstance(names, str) else names))
    values = values_of(schema)
    return found if values is None else found & frozenset(map(type_of, values))


def type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def values_of(schema: dict[str, Any], name: str | None = None) -> list[Any] | None:
    """The values that `const` or `enum` leave, of one type; None: any."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values is None:
        return [True, False] if name == "boolean" else [None] if name == "null" else None
    return [value for value in values if name is None or type_of(value) == name]


def canonical(value: Any) -> str:
    """Equal texts for equal JSON values."""
    match value:
        case list():
            return f"[{','.join(map(canonical, value))}]"
        case dict():
            return f"{{{','.join(sorted(f'{json.dumps(k)}:{canonical(v)}' for k, v in value.items()))}}}"
        case float() if value == int(value):
            return str(int(value))
    return json.dumps(value)


Bounds = tuple[float, float, bool, bool]  # least, most, whether each of them is left out


def number_range(schema: dict[str, Any], values: list[Any] | None) -> Bounds:
    if values:
        return min(values), max(values), False, False
    least = max((schema.get("minimum", -float("inf")), False), (schema.get("exclusiveMinimum", -float("inf")), True))
    most = min((schema.get("maximum", float("inf")), True), (schema.get("exclusiveMaximum", float("inf")), False))
    return least[0], most[0], least[1], not most[1]


def size_range(schema: dict[str, Any], values: list[Any] | None, least: str, most: str) -> Bounds:
    if values:
        return min(map(len, values)), max(map(len, values)), False, False
    return schema.get(least, 0), schema.get(most, float("inf")), False, False


def overlapping(a: Bounds, b: Bounds) -> bool:
    least, most = max((a[0], a[2]), (b[0], b[2])), min((a[1], not a[3]), (b[1], not b[3]))
    return least[0] < most[0] or (least[0] == most[0] and not least[1] and most[1])
