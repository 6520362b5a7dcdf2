"""JSON schemas of the types that msgspec reads, which allow nothing but what is read as a value of the type.

msgspec's own schemas say less than its decoder asks for (a datetime is any text, and so are the keys of a dict), and
have keywords that no runtime enforces. So the description of a type and its schema are gone through side by side, and
the schema is mended. A type that has no such schema is refused.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

Schema = dict[str, Any]
_SECONDS = r"[0-9]{1,6}(\.[0-9]{1,6})?S"
_MINUTES = f"[0-9]{{1,6}}M({_SECONDS})?"
_CLOCK = f"T([0-9]{{1,6}}H({_MINUTES}|{_SECONDS})?|{_MINUTES}|{_SECONDS})"
DURATION = f"^-?P([0-9]{{1,6}}D({_CLOCK})?|{_CLOCK})$"  # without months, which have no length
DECIMAL = r"^-?[0-9]{1,18}(\.[0-9]{1,18})?$"
BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
INT_KEY = "^(0|-?[1-9][0-9]{0,17})$"


def schema_of_type(kind: Any) -> Schema:
    """Raises TypeError for a type that msgspec does not read, or outputs cannot be kept to."""
    schema: Schema = msgspec.json.schema(kind)
    _mend(inspect.type_info(kind), schema, dict(schema.get("$defs", {})))
    return schema


def _mend(kind: inspect.Type, schema: Schema, shared: dict[str, Schema]) -> None:
    """`shared`: schemas by name that were not come to yet."""
    kind = _bare(kind)
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        if name not in shared:
            return
        schema = shared.pop(name)
    for part, of_part in _parts(kind, schema):
        _mend(part, of_part, shared)
    match kind:
        case inspect.DateTimeType(tz=False) | inspect.TimeType(tz=False):
            raise TypeError(f"outputs cannot be kept to a {_name(kind)} without a time zone")
        case inspect.DateTimeType():
            schema["format"] = "date-time"
        case inspect.TimeType():
            schema["format"] = "time"
        case inspect.TimeDeltaType():
            _keep_to(schema, DURATION)
        case inspect.DecimalType():
            _keep_to(schema, DECIMAL)
        case inspect.BytesType() | inspect.ByteArrayType() | inspect.MemoryViewType():
            if (kind.min_length, kind.max_length) != (None, None):
                raise TypeError(f"outputs cannot be kept to {_name(kind)} of some length")
            _keep_to(schema, BASE64)
        case inspect.SetType(min_length=least) | inspect.FrozenSetType(min_length=least):
            if least is not None and least > 1:
                raise TypeError(f"outputs cannot be kept to a {_name(kind)} of at least {least}")
            del schema["uniqueItems"]  # what comes twice is in the set once
        case inspect.DictType():
            _mend_keys(_bare(kind.key_type), schema)


def _keep_to(schema: Schema, pattern: str) -> None:
    """In the place of what says the same by a name that is not enforced."""
    schema.pop("format", None)
    schema.pop("contentEncoding", None)
    schema["pattern"] = pattern


def _mend_keys(key: inspect.Type, schema: Schema) -> None:
    """Of a dict's schema. Raises TypeError."""
    value = schema.get("additionalProperties", {})
    match key:
        case inspect.AnyType() | inspect.StrType(min_length=None, max_length=None, pattern=None):
            return
        case inspect.IntType(gt=None, ge=None, lt=None, le=None, multiple_of=None):
            named = {"patternProperties": {INT_KEY: value}}
        case inspect.EnumType() | inspect.LiteralType() if all(isinstance(text, str) for text in _values(key)):
            named = {"properties": dict.fromkeys(_values(key), value)}
        case _:
            raise TypeError(f"outputs cannot be kept to such keys of a dict: {_name(key)}")
    schema |= {**named, "additionalProperties": False}


def _parts(kind: inspect.Type, schema: Schema) -> Iterator[tuple[inspect.Type, Schema]]:
    """What a type is made of, each part with its schema."""
    match kind:
        case inspect.CollectionType() if "items" in schema:
            yield kind.item_type, schema["items"]
        case inspect.TupleType() if kind.item_types:
            yield from zip(kind.item_types, schema["prefixItems"], strict=True)
        case inspect.DictType() if "additionalProperties" in schema:
            yield kind.value_type, schema["additionalProperties"]
        case inspect.UnionType():
            yield from zip(_alternatives(kind), _options(schema), strict=True)
        case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType() | inspect.NamedTupleType():
            places = schema.get("prefixItems")
            for i, field in enumerate(reversed(kind.fields), 1):  # a tag comes first
                yield field.type, schema["properties"][field.encode_name] if places is None else places[-i]


def _alternatives(union: inspect.UnionType) -> list[inspect.Type]:
    """Without None, in the order in which msgspec's schema has them: structs, of which tags tell which it is, last."""
    kinds = [each for each in union.types if not isinstance(_bare(each), inspect.NoneType)]
    return sorted(kinds, key=_is_object)


def _is_object(kind: inspect.Type) -> bool:
    bare = _bare(kind)
    return isinstance(bare, inspect.StructType) and not bare.array_like


def _options(schema: Schema) -> list[Schema]:
    """Without null."""
    found = [option for each in schema["anyOf"] for option in (_options(each) if "anyOf" in each else [each])]
    return [option for option in found if option != {"type": "null"}]


def _bare(kind: inspect.Type) -> inspect.Type:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    return kind


def _values(key: inspect.EnumType | inspect.LiteralType) -> list[Any]:
    return [each.value for each in key.cls] if isinstance(key, inspect.EnumType) else list(key.values)


def _name(kind: inspect.Type) -> str:
    """As Python calls it, about: DateTimeType -> datetime."""
    return type(kind).__name__.removesuffix("Type").lower()
