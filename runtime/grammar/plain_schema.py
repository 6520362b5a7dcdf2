"""Simplifies a schema: removes keywords that have no effect where they are, and replaces others by plainer ones.

Decides which keywords no value can violate: those for a type that the schema excludes, those that its other keywords
imply, and empty ones. It looks at one object of a schema and follows no reference. It leaves unchanged whatever is
uncertain, which is then enforced or refused as usual, and keywords whose own value is invalid.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from ramet.runtime.grammar.formats import FORMATS, NUMBER_FORMATS, SILENT_FORMATS
from ramet.runtime.grammar.keywords import ANNOTATIONS, TYPES, words
from ramet.runtime.grammar.one_of import type_of

Schema = bool | dict[str, Any]
ALL = frozenset(TYPES) - {"integer"}  # integers are numbers here
MAX_DEPTH = 3
OF_TYPE = {  # keyword -> the only type that it constrains
    **dict.fromkeys(words("minLength maxLength pattern"), "string"),
    **dict.fromkeys(words("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"), "number"),
    **dict.fromkeys(
        words(
            "minItems maxItems uniqueItems contains minContains maxContains unevaluatedItems",
            "items prefixItems additionalItems",
        ),
        "array",
    ),
    **dict.fromkeys(
        words(
            "minProperties maxProperties propertyNames dependentRequired dependentSchemas dependencies",
            "unevaluatedProperties properties patternProperties additionalProperties required",
        ),
        "object",
    ),
}
PROPER = {  # keyword -> the types that its value may have; a number for all others
    **dict.fromkeys(words("contains propertyNames unevaluatedItems unevaluatedProperties"), (bool, dict)),
    **dict.fromkeys(words("dependentRequired dependentSchemas dependencies"), (dict,)),
    **dict.fromkeys(words("pattern"), (str,)),
    **dict.fromkeys(words("uniqueItems"), (bool,)),
}
# these are kept, because references may point into them
TARGETS = words("items prefixItems additionalItems properties patternProperties additionalProperties")
EMPTY = words("patternProperties dependentRequired dependentSchemas dependencies allOf prefixItems")
BESIDE = words("$ref $dynamicRef $recursiveRef")  # may constrain any part of a value
PLACES = words("allOf anyOf oneOf if then else dependentSchemas dependencies")  # hold schemas for the same value
LOOKS_AT = {
    "Properties": words("properties patternProperties additionalProperties unevaluatedProperties"),
    "Items": words("items prefixItems additionalItems contains unevaluatedItems"),
}


def plain(schema: dict[str, Any], depth: int = 0) -> Schema:
    """An equivalent, simpler schema. False: no value is valid. `depth`: nesting of calls of `admitted`."""
    found = dict(schema)
    for rule in RULES:
        if rule(found, depth) is False:
            return False
    return found


def admitted(schema: Any, depth: int = 0) -> frozenset[str]:
    """Types all of whose values are certainly valid."""
    if not isinstance(schema, dict) or depth >= MAX_DEPTH:
        return ALL if schema is True else frozenset()
    plainer = plain(schema, depth + 1)
    if isinstance(plainer, bool):
        return frozenset()
    kinds = types_of(plainer)
    for keyword, value in plainer.items():
        if keyword in ANNOTATIONS or keyword.startswith("x-") or keyword in ("$defs", "definitions"):
            continue
        if keyword == "type":
            kinds -= set() if "number" in as_list(value) else {"number"}
        elif keyword == "allOf":
            kinds = kinds.intersection(*(admitted(part, depth + 1) for part in _schemas(value)))
        elif keyword == "anyOf":
            kinds &= frozenset().union(*(admitted(part, depth + 1) for part in _schemas(value)))
        elif not _says_nothing(keyword, value, depth):
            kinds = kinds - {OF_TYPE[keyword]} if keyword in OF_TYPE else frozenset()
    return kinds


def _says_nothing(keyword: str, value: Any, depth: int) -> bool:
    """Whether the keyword has no effect even on values of its own type."""
    if keyword == "pattern":
        return value in ("", ".*", "^", "$")
    if keyword in ("items", "additionalItems", "additionalProperties"):
        return admitted(value, depth + 1) == ALL
    if keyword == "properties":
        return isinstance(value, dict) and all(admitted(part, depth + 1) == ALL for part in value.values())
    return keyword == "required" and value == []


def types_of(schema: dict[str, Any]) -> frozenset[str]:
    """The types of the values that may be valid."""
    names = as_list(schema.get("type", list(TYPES)))
    found = ALL & {"number" if name == "integer" else name for name in names if isinstance(name, str)}
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return found & {type_of(value) for value in values} if isinstance(values, list) else found


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _schemas(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _names(value: Any) -> list[str]:
    return value if isinstance(value, list) and all(isinstance(name, str) for name in value) else []


def _count(schema: dict[str, Any], keyword: str) -> float | None:
    """The keyword's value. None: it is missing or not a count."""
    value = schema.get(keyword)
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def _map(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _drop(schema: dict[str, Any], keyword: str, is_said: bool) -> None:
    if is_said and keyword in schema:
        del schema[keyword]


def _also(schema: dict[str, Any], part: Any) -> None:
    schema["allOf"] = [*_schemas(schema.get("allOf")), part]


def _is_schema(value: Any) -> bool:
    return isinstance(value, bool | dict)


# -- the rules: each WRITES the schema; False: nothing is valid ------------------------------------------------------


def _negation(schema: dict[str, Any], depth: int) -> bool | None:
    """`not` that excludes all values, whole types, or values that the schema excludes anyway."""
    excluded, types = schema.get("not"), types_of(schema)
    if not _is_schema(excluded) or not types:
        return None
    if types <= admitted(excluded, depth):
        return False
    if not isinstance(excluded, dict) or not types_of(excluded) & types:
        del schema["not"]
        return None
    said = {keyword for keyword in excluded if keyword not in ANNOTATIONS}
    taken = as_list(excluded.get("type"))
    left = as_list(schema["type"]) if "type" in schema else [name for name in TYPES if name != "integer"]
    is_exact = "integer" not in taken or "number" in taken or "number" not in left
    if said == {"type"} and is_exact and all(name in TYPES for name in taken):
        taken = [*taken, "integer"] if "number" in taken else taken
        schema["type"] = [name for name in left if name not in taken]
        del schema["not"]
        return bool(schema["type"])
    return None


def _types(schema: dict[str, Any], depth: int) -> None:
    """Remove keywords for types that the schema excludes."""
    types = types_of(schema)
    for keyword in [keyword for keyword in schema if OF_TYPE.get(keyword, "string") not in types]:
        proper, value = PROPER.get(keyword, (int, float)), schema[keyword]
        is_bool = isinstance(value, bool) and bool not in proper
        if keyword == "format":
            _drop(schema, keyword, isinstance(value, str) and value in FORMATS)
        elif keyword in OF_TYPE and keyword not in TARGETS:
            _drop(schema, keyword, isinstance(value, proper) and not is_bool)


def _formats(schema: dict[str, Any], depth: int) -> None:
    """OpenAPI's formats of numbers become bounds. Formats that only say how a value is shown are removed."""
    name = schema.get("format")
    if not isinstance(name, str) or (name not in NUMBER_FORMATS and name not in SILENT_FORMATS):
        return
    del schema["format"]
    for keyword, bound, narrower in zip(("minimum", "maximum"), NUMBER_FORMATS.get(name, ()), (max, min), strict=False):
        own = schema.get(keyword, bound)
        if isinstance(own, int | float) and not isinstance(own, bool):
            schema[keyword] = narrower(own, bound)


def _empty(schema: dict[str, Any], depth: int) -> None:
    for keyword in EMPTY:
        _drop(schema, keyword, schema.get(keyword) in ([], {}))
    for keyword in ("minLength", "minItems", "minProperties"):
        _drop(schema, keyword, _count(schema, keyword) == 0)
    for keyword in ("exclusiveMinimum", "exclusiveMaximum", "nullable"):  # draft 4, OpenAPI
        _drop(schema, keyword, schema.get(keyword) is False)


def _numbers(schema: dict[str, Any], depth: int) -> None:
    step = schema.get("multipleOf")
    if as_list(schema.get("type")) in (["integer"], ["integer", "null"], ["null", "integer"]) and _is_step(step):
        _drop(schema, "multipleOf", (1 / Fraction(str(step))).denominator == 1)


def _is_step(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1


def _identity(schema: dict[str, Any], depth: int) -> None:
    """Remove the schema's own identifier if it contains no reference whose meaning could depend on it."""
    for keyword in ("$id", "id"):
        inside = [value for name, value in schema.items() if name != keyword]
        _drop(schema, keyword, isinstance(schema.get(keyword), str) and not any(map(_refers, inside)))


def _refers(value: Any) -> bool:
    if isinstance(value, dict):
        return not BESIDE.isdisjoint(value) or any(map(_refers, value.values()))
    return isinstance(value, list) and any(map(_refers, value))


def _conditions(schema: dict[str, Any], depth: int) -> None:
    """Remove `if` without `then` and `else`, and these without `if`."""
    for keyword in ("then", "else"):
        if keyword in schema and _is_schema(schema[keyword]):
            _drop(schema, keyword, "if" not in schema or types_of(schema) <= admitted(schema[keyword], depth))
    _drop(schema, "if", "then" not in schema and "else" not in schema and _is_schema(schema.get("if")))


def _items(schema: dict[str, Any], depth: int) -> None:
    prefix = schema.get("prefixItems", schema["items"] if isinstance(schema.get("items"), list) else [])
    rest = schema.get("additionalItems" if isinstance(schema.get("items"), list) else "items")
    most = [
        2,
        *([len(_schemas(prefix))] if rest is False else []),
        *([_count(schema, "maxItems")] if "maxItems" in schema else []),
    ]
    _drop(schema, "uniqueItems", min(each or 0 for each in most) <= 1 and schema.get("uniqueItems") is True)


def _contains(schema: dict[str, Any], depth: int) -> None:
    if "contains" not in schema:
        _drop(schema, "minContains", _count(schema, "minContains") is not None)
        _drop(schema, "maxContains", _count(schema, "maxContains") is not None)
        return
    least = _count(schema, "minContains") if "minContains" in schema else 1
    most = _count(schema, "maxContains") if "maxContains" in schema else None
    if least is None or ("maxContains" in schema and most is None):
        return
    if admitted(schema["contains"], depth) == ALL:
        schema["minItems"] = max(_count(schema, "minItems") or 0, least)
        if most is not None:
            own = _count(schema, "maxItems")
            schema["maxItems"] = most if own is None else min(own, most)
    elif least > 0 or not (most is None or schema["contains"] is False):
        return
    for keyword in ("contains", "minContains", "maxContains"):
        _drop(schema, keyword, True)


def _unevaluated(schema: dict[str, Any], depth: int) -> None:
    """If no other schema evaluates properties or items, `unevaluated...` means the same as `additional...`."""
    is_old = isinstance(schema.get("items"), list)
    for what, plainer in (("Properties", "additionalProperties"), ("Items", "additionalItems" if is_old else "items")):
        keyword = f"unevaluated{what}"
        if not _is_schema(schema.get(keyword)):
            continue
        if plainer in schema or admitted(schema[keyword], depth) == ALL:
            del schema[keyword]
        elif not _is_looked_at(schema, what) and not (what == "Items" and "contains" in schema):
            schema[plainer] = schema.pop(keyword)


def _is_looked_at(schema: Any, what: str, inside: bool = False) -> bool:
    """Whether another schema for the same value may evaluate parts of it."""
    if not isinstance(schema, dict):
        return False
    if not BESIDE.isdisjoint(schema) or (inside and not LOOKS_AT[what].isdisjoint(schema)):
        return True
    parts = [each for keyword in PLACES & schema.keys() for each in _parts(schema[keyword])]
    return any(_is_looked_at(part, what, True) for part in parts)


def _parts(value: Any) -> list[Any]:
    """The schemas in the value of a keyword of PLACES."""
    return value if isinstance(value, list) else [value, *value.values()] if isinstance(value, dict) else []


def _is_possible(schema: dict[str, Any], name: str) -> bool:
    """Whether an object may have a property of that name."""
    named = _map(schema, "properties")
    if name in named:
        return named[name] is not False
    return "patternProperties" in schema or schema.get("additionalProperties") is not False


def _dependent(schema: dict[str, Any], depth: int) -> None:
    """Resolve dependencies on a property that is required, or that no object can have."""
    required = _names(schema.get("required"))
    left: dict[str, dict[str, Any]] = {}
    for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
        if isinstance(schema.get(keyword), dict):
            left[keyword] = dict(schema[keyword])
    grown = bool(left)
    while grown:
        grown = False
        for needs in left.values():
            for name, need in list(needs.items()):
                names = _names(need) if isinstance(need, list) else None
                if names == [] and need != []:
                    continue
                is_done = not _is_possible(schema, name)
                is_done |= {name, *required} >= set(names) if names is not None else "object" in admitted(need, depth)
                if not is_done and name in required and (names is not None or _is_schema(need)):
                    if names is None:
                        _also(schema, need)
                    else:
                        required = [*required, *(each for each in names if each not in required)]
                    is_done = grown = True
                if is_done:
                    del needs[name]
    if required != _names(schema.get("required")):
        schema["required"] = required
    for keyword, needs in left.items():
        schema[keyword] = needs
        _drop(schema, keyword, not needs)


def _property_names(schema: dict[str, Any], depth: int) -> None:
    """`propertyNames` with a list of names becomes `properties`."""
    allowed = schema.get("propertyNames")
    if "string" in admitted(allowed, depth):
        del schema["propertyNames"]
        return
    if not isinstance(allowed, dict):
        return
    said = {keyword for keyword in allowed if keyword not in ANNOTATIONS}
    names = _names(allowed["enum"]) if "enum" in said else [allowed["const"]] if "const" in said else []
    if not names or said - {"type", "enum", "const"} or len(said & {"enum", "const"}) != 1:
        return
    if "string" not in as_list(allowed.get("type", "string")) or not isinstance(names[0], str):
        return
    if "patternProperties" in schema or not isinstance(schema.get("properties", {}), dict):
        return
    named, others = _map(schema, "properties"), schema.get("additionalProperties", True)
    schema["properties"] = {name: inner for name, inner in named.items() if name in names}
    schema["properties"] |= {name: others for name in names if name not in named and others is not False}
    schema["additionalProperties"] = False
    del schema["propertyNames"]


def _sizes(schema: dict[str, Any], depth: int) -> None:
    """Remove numbers of properties that other keywords imply."""
    least, most = _count(schema, "minProperties"), _count(schema, "maxProperties")
    _drop(schema, "minProperties", least is not None and least <= len({*_names(schema.get("required"))}))
    is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    _drop(schema, "maxProperties", most is not None and is_closed and len(_map(schema, "properties")) <= most)


# the rules on which `if` and `contains` depend come first
RULES: tuple[Callable[[dict[str, Any], int], bool | None], ...] = (
    _negation, _types, _formats, _empty, _numbers, _identity, _unevaluated, _conditions, _items, _contains, _dependent,
    _property_names, _sizes,
)  # fmt: skip
