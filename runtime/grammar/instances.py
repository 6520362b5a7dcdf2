"""Whether a value keeps to a schema that has been read. For the values of `const` and `enum`, which are few."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ramet.runtime.grammar.one_of import canonical, type_of

Schema = bool | dict[str, Any]


def holds(schema: Schema, value: Any, targets: Mapping[str, Schema]) -> bool:
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema and not holds(targets[schema["$ref"]], value, targets):
        return False
    if not all(holds(part, value, targets) for part in schema.get("allOf", ())):
        return False
    if "anyOf" in schema and not any(holds(part, value, targets) for part in schema["anyOf"]):
        return False
    if "const" in schema and canonical(value) != canonical(schema["const"]):
        return False
    if "enum" in schema and canonical(value) not in map(canonical, schema["enum"]):
        return False
    names = schema.get("type")
    if names is not None and not is_of_type(value, [names] if isinstance(names, str) else names):
        return False
    match value:
        case bool() | None:
            return True
        case int() | float():
            return number_holds(schema, value)
        case str():
            pattern = schema.get("pattern")
            return within(schema, len(value), "Length") and (pattern is None or bool(re.search(pattern, value)))
        case list():
            return within(schema, len(value), "Items") and items_hold(schema, value, targets)
        case _:
            return within(schema, len(value), "Properties") and properties_hold(schema, value, targets)


def is_of_type(value: Any, names: list[str]) -> bool:
    name = type_of(value)
    return name in names or (name == "number" and "integer" in names and value == int(value))


def within(schema: dict[str, Any], size: int, what: str) -> bool:
    return bool(schema.get(f"min{what}", 0) <= size <= schema.get(f"max{what}", size))


def number_holds(schema: dict[str, Any], value: float) -> bool:
    if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return False
    if value <= schema.get("exclusiveMinimum", value - 1) or value >= schema.get("exclusiveMaximum", value + 1):
        return False
    return "multipleOf" not in schema or Decimal(str(value)) % Decimal(str(schema["multipleOf"])) == 0


def items_hold(schema: dict[str, Any], value: list[Any], targets: Mapping[str, Schema]) -> bool:
    first = schema.get("prefixItems", [])
    return all(
        holds(first[i] if i < len(first) else schema.get("items", True), item, targets) for i, item in enumerate(value)
    )


def properties_hold(schema: dict[str, Any], value: dict[str, Any], targets: Mapping[str, Schema]) -> bool:
    if not all(name in value for name in schema.get("required", ())):
        return False
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, inner in value.items():
        kept = [named[name]] if name in named else []
        kept += [part for pattern, part in patterns.items() if re.search(pattern, name)]
        if not all(holds(part, inner, targets) for part in kept or [schema.get("additionalProperties", True)]):
            return False
    return True
