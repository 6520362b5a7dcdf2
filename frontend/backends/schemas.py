"""JSON schemas for services that enforce a part of the language only.

A copy is adapted where nothing that its author wrote is lost; everything else is refused by name and place, before a
service ignores it. What services enforce is as their documentation says.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

FIELD = "value"  # of an object that holds what must not stand alone
NOTES = frozenset({  # keywords that enforce nothing
    "title", "$schema", "$id", "$comment", "examples", "default", "deprecated", "readOnly", "writeOnly",
})  # fmt: skip
SAYS_SOMETHING = frozenset({"type", "enum", "const", "anyOf", "allOf", "oneOf", "$ref"})
OF_SCHEMAS = ("properties", "$defs", "definitions")  # keywords whose values are schemas by name
LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
COMMON = frozenset({
    "type", "properties", "required", "additionalProperties", "items", "enum", "anyOf", "$ref", "$defs", "definitions",
    "description", "format", "minItems",
})  # fmt: skip


class Rules(NamedTuple):
    """`closed`: objects have the properties that are named, no others. `all_required`: and each of them."""

    keywords: frozenset[str]
    closed: bool
    all_required: bool
    most_min_items: int | None = None


OPENAI = Rules(
    COMMON
    | {"const", "pattern", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "maxItems"},
    closed=True,
    all_required=True,
)
ANTHROPIC = Rules(COMMON | {"const", "allOf", "pattern"}, closed=True, all_required=False, most_min_items=1)
GEMINI = Rules(
    (COMMON | {"oneOf", "prefixItems", "maxItems", "minimum", "maximum"}) - {"definitions"},  # see with_defs
    closed=False,
    all_required=False,
)


def adapted(schema: Any, rules: Rules, place: str = "json_schema") -> dict[str, Any]:
    """A copy that says the same in the service's part of the language. Raises ValueError."""
    if not isinstance(schema, Mapping):
        raise ValueError(f"{place} is {schema!r}, and a schema must be an object here")
    if rules.closed and not SAYS_SOMETHING & schema.keys():
        raise ValueError(f"{place} says nothing of what it holds")
    kept: dict[str, Any] = {}
    for keyword, value in _unfolded(schema).items():
        if keyword in NOTES:
            continue
        if keyword == "const" and keyword not in rules.keywords:
            keyword, value = "enum", [value]
        if keyword not in rules.keywords:
            raise ValueError(f"{place} has {keyword!r}, which is not enforced")
        kept[keyword] = _kept(keyword, value, rules, f"{place}.{keyword}")
    if rules.closed and (kept.get("type") == "object" or "properties" in kept):
        _close(kept, rules, place)
    if rules.most_min_items is not None and kept.get("minItems", 0) > rules.most_min_items:
        raise ValueError(f"{place}.minItems is {kept['minItems']}, and at most {rules.most_min_items} is enforced")
    return kept


def _unfolded(schema: Mapping[str, Any]) -> dict[str, Any]:
    """allOf with one entry is that entry."""
    only = schema.get("allOf")
    if (
        isinstance(only, list)
        and len(only) == 1
        and isinstance(only[0], Mapping)
        and not only[0].keys() & schema.keys()
    ):
        return {**{name: value for name, value in schema.items() if name != "allOf"}, **only[0]}
    return dict(schema)


def _kept(keyword: str, value: Any, rules: Rules, place: str) -> Any:
    if keyword in OF_SCHEMAS:
        return {name: adapted(each, rules, f"{place}.{name}") for name, each in value.items()}
    if keyword in LISTS:
        return [adapted(each, rules, f"{place}[{i}]") for i, each in enumerate(value)]
    return adapted(value, rules, place) if keyword == "items" else value


def _close(kept: dict[str, Any], rules: Rules, place: str) -> None:
    properties = kept.get("properties") or {}
    if not properties:
        raise ValueError(f"{place} is an object without named properties, and only named ones are enforced")
    if kept.get("additionalProperties", False) is not False:
        raise ValueError(f"{place}.additionalProperties is not false, and only named properties are enforced")
    kept["additionalProperties"] = False
    optional = [name for name in properties if name not in kept.get("required", ())]
    if rules.all_required and optional:
        hint = "list it in 'required' and let it be null instead"
        raise ValueError(f"{place}.properties.{optional[0]} may be absent, which cannot be asked for; {hint}")


def with_defs(schema: Any) -> Any:
    """With `$defs` for the `definitions` of its root, their older name. Raises ValueError where it has both."""
    if not isinstance(schema, Mapping) or "definitions" not in schema:
        return schema
    if "$defs" in schema:
        raise ValueError("json_schema has '$defs' and 'definitions', of which one may be there")
    found = {name: value for name, value in schema.items() if name != "definitions"}
    renamed: dict[str, Any] = _redirected({**found, "$defs": schema["definitions"]})
    return renamed


def _redirected(value: Any) -> Any:
    if isinstance(value, list):
        return [_redirected(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    found = {name: _redirected(each) for name, each in value.items()}
    reference = value.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/definitions/"):
        found["$ref"] = "#/$defs/" + reference.removeprefix("#/definitions/")
    return found


def rooted(schema: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The schema with an object at its root, and whether that is one made around it, which has it as FIELD.

    Raises ValueError for a reference that would lead elsewhere.
    """
    root, shared = dict(schema), {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    if (target := _target(root)) is not None:
        root = {**target, **shared}
    if root.get("type") == "object":
        return root, False
    if any(reference == "#" or reference.startswith("#/properties") for reference in _references(schema)):
        raise ValueError("json_schema refers to its own root, which is not an object")
    return {**wrapped({name: value for name, value in schema.items() if name not in shared}), **shared}, True


def wrapped(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An object with one property that is this."""
    return {
        "type": "object",
        "properties": {FIELD: dict(schema)},
        "required": [FIELD],
        "additionalProperties": False,
    }


def _target(root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a root that is a reference only refers to."""
    reference = root.get("$ref")
    for name in ("$defs", "definitions"):
        if isinstance(reference, str) and reference.startswith(f"#/{name}/"):
            found = root.get(name, {}).get(reference.removeprefix(f"#/{name}/"))
            if isinstance(found, Mapping):
                return found
    return None


def _references(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(_references(each) for each in value.values()))
    return set().union(*map(_references, value)) if isinstance(value, list) else set()
