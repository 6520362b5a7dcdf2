"""Schemas that one value must keep to, as one schema: `allOf`, references and `anyOf` multiplied out."""

from typing import Any

from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.json_schema import Schema, SchemaDocument
from ramet.runtime.grammar.one_of import canonical

MAX_ALTERNATIVES = 256
APPLICATORS = ("$ref", "allOf", "anyOf", "$defs", "definitions")
GREATER = frozenset(
    ("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum")
)  # the greater one of two holds
SMALLER = frozenset(("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum"))
OF_OBJECTS = frozenset(("properties", "patternProperties", "additionalProperties"))
OF_ARRAYS = frozenset(("prefixItems", "items"))


class Merger:
    def __init__(self, document: SchemaDocument) -> None:
        self.document = document

    def alternatives(self, schema: Schema, place: str) -> list[Schema]:
        """Schemas without references and alternatives; a value keeps to one of them exactly when to `schema`."""
        if isinstance(schema, bool):
            return [schema] if schema else []
        found: list[Schema] = [{k: v for k, v in schema.items() if k not in APPLICATORS}]
        if "$ref" in schema:
            found = self.product(found, self.alternatives(self.document.targets[schema["$ref"]], schema["$ref"]), place)
        for i, part in enumerate(schema.get("allOf", ())):
            found = self.product(found, self.alternatives(part, f"{place}/allOf/{i}"), place)
        if "anyOf" in schema:
            options = [
                a for i, part in enumerate(schema["anyOf"]) for a in self.alternatives(part, f"{place}/anyOf/{i}")
            ]
            found = self.product(found, options, place)
        return found

    def product(self, left: list[Schema], right: list[Schema], place: str) -> list[Schema]:
        if len(left) * len(right) > MAX_ALTERNATIVES:
            raise GrammarError(f"{place}: its anyOf and allOf make more than {MAX_ALTERNATIVES} alternatives")
        merged = [self.merged(a, b, place) for a in left for b in right]
        return [schema for schema in merged if schema is not False]

    def merged(self, a: Schema, b: Schema, place: str) -> Schema:
        if isinstance(a, bool) or isinstance(b, bool):
            return b if a is True else a if b is True else False
        if not a or not b:
            return a or b
        found = dict(a)
        for keyword, value in b.items():
            if keyword not in OF_OBJECTS | OF_ARRAYS:
                combined = value if keyword not in a else self.combined(keyword, a[keyword], value, place)
                if combined is None:
                    return False
                found[keyword] = combined
        if OF_OBJECTS & {*a} and OF_OBJECTS & {*b}:
            found |= self.objects(a, b, place)
        else:
            found |= {k: v for k, v in b.items() if k in OF_OBJECTS}
        if OF_ARRAYS & {*a} and OF_ARRAYS & {*b}:
            found |= arrays(a, b)
        else:
            found |= {k: v for k, v in b.items() if k in OF_ARRAYS}
        return found

    def combined(self, keyword: str, left: Any, right: Any, place: str) -> Any:
        """None: nothing keeps to both."""
        if keyword in GREATER:
            return max(left, right)
        if keyword in SMALLER:
            return min(left, right)
        match keyword:
            case "required":
                return list(dict.fromkeys([*left, *right]))
            case "type":
                return both_types(as_list(left), as_list(right)) or None
            case "enum":
                known = {*map(canonical, right)}
                return [value for value in left if canonical(value) in known] or None
            case "const":
                return left if canonical(left) == canonical(right) else None
        if left == right:
            return left
        raise GrammarError(f"{place}: {self.document.backend} does not enforce two different {keyword!r} at once")

    def objects(self, a: dict[str, Any], b: dict[str, Any], place: str) -> dict[str, Any]:
        if "patternProperties" in a or "patternProperties" in b:
            fact = f"{place}: {self.document.backend} does not enforce 'patternProperties' beside other properties"
            raise GrammarError(fact)
        names = dict.fromkeys([*a.get("properties", {}), *b.get("properties", {})])
        others = [schema.get("additionalProperties", True) for schema in (a, b)]
        properties = {
            name: all_of(a.get("properties", {}).get(name, others[0]), b.get("properties", {}).get(name, others[1]))
            for name in names
        }
        found: dict[str, Any] = {"properties": properties} if properties else {}
        if "additionalProperties" in a or "additionalProperties" in b:
            found["additionalProperties"] = all_of(*others)
        return found


def arrays(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    first, second = a.get("prefixItems", []), b.get("prefixItems", [])
    further = [schema.get("items", True) for schema in (a, b)]
    prefix = [
        all_of(first[i] if i < len(first) else further[0], second[i] if i < len(second) else further[1])
        for i in range(max(len(first), len(second)))
    ]
    return ({"prefixItems": prefix} if prefix else {}) | {"items": all_of(*further)}


def all_of(a: Schema, b: Schema) -> Schema:
    if a is False or b is False:
        return False
    return b if a is True else a if b is True else {"allOf": [a, b]}


def as_list(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names


def both_types(left: list[str], right: list[str]) -> list[str]:
    """Types that both allow; integers are numbers."""
    found = [name for name in left if name in right or (name == "integer" and "number" in right)]
    return found + [name for name in right if name == "integer" and "number" in left and name not in found]
