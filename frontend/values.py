"""Types of outputs: what `dtype` and a type as `json_schema` ask of a text, and the value that is made of it."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple, get_args, get_origin

import msgspec

from ramet.frontend.ir import Held, Printed
from ramet.frontend.type_schemas import schema_of_type

BLANKS = r"[ \n]*"  # a number ends where a blank or a new line would come, which the stop texts cut
STOPS = (" ", "\n")


class Wanted(NamedTuple):
    """`stops`: texts that end the output beside the call's own. `read` raises ValueError; None: the text stays."""

    held: Held
    read: Callable[[str], Any] | None = None
    kind: type | None = None
    stops: tuple[str, ...] = ()


class Int(Printed, int):
    """An integer of an output. It is appended as it is: s += s["age"], s += "about " + s["age"] + " years"."""

    def __add__(self, other: Any) -> Any:
        return f"{int(self)}{other}" if isinstance(other, str) else super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        return f"{other}{int(self)}" if isinstance(other, str) else super().__radd__(other)


class Float(Printed, float):
    """The same for a number with a point."""

    def __add__(self, other: Any) -> Any:
        return f"{float(self)}{other}" if isinstance(other, str) else super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        return f"{other}{float(self)}" if isinstance(other, str) else super().__radd__(other)


def _read_bool(text: str) -> bool:
    if text.strip() not in ("True", "False"):
        raise ValueError(f"{text!r} is neither True nor False")
    return text.strip() == "True"


def _read_str(text: str) -> str:
    value = json.loads(text)
    if not isinstance(value, str):
        raise ValueError(f"{text!r} is not a JSON string")
    return value


_DTYPES: dict[type, Wanted] = {
    int: Wanted(Held("regex", r"[-+]?[0-9]{1,18}" + BLANKS), lambda text: Int(text.strip()), int, STOPS),
    float: Wanted(
        Held("regex", r"[-+]?[0-9]{1,18}(\.[0-9]{1,18})?" + BLANKS), lambda text: Float(text.strip()), float, STOPS
    ),
    bool: Wanted(Held("regex", "(True|False)"), _read_bool, bool),
    str: Wanted(Held("json_schema", {"type": "string"}), _read_str, str),
}
_BY_NAME = {
    "int": int,
    "integer": int,
    "float": float,
    "number": float,
    "bool": bool,
    "boolean": bool,
    "str": str,
    "string": str,
}


def wanted_dtype(dtype: Any) -> Wanted:
    """int, float, bool or str, or its name. Raises ValueError."""
    kind = _BY_NAME.get(dtype) if isinstance(dtype, str) else dtype
    if not isinstance(kind, type) or kind not in _DTYPES:
        raise ValueError(f"dtype is {dtype!r}, must be int, float, bool or str, or one of these as a word")
    return _DTYPES[kind]


def wanted_schema(schema: Any) -> Wanted:
    """A JSON schema (an object or its text, whose outputs stay texts), or a type, of which outputs become instances.

    Types: those of Pydantic, and those that msgspec reads: dataclasses, its structs, typed dictionaries, named tuples,
    enums, literals, numbers, dates, and what is made of them: list[Point], Point | None (type_schemas.py).
    Raises ValueError.
    """
    if isinstance(schema, dict):
        return Wanted(Held("json_schema", schema))
    if isinstance(schema, str):
        try:
            value = json.loads(schema)
        except ValueError as error:
            raise ValueError(f"json_schema is a text, but no JSON: {error}") from None
        if not isinstance(value, dict | bool):
            raise ValueError(f"json_schema is {schema!r}, must be the text of an object")
        return Wanted(Held("json_schema", value))
    if callable(getattr(schema, "model_json_schema", None)):  # Pydantic's
        return Wanted(Held("json_schema", _closed(schema.model_json_schema())), schema.model_validate_json)
    schema = getattr(schema, "__value__", schema)  # of `type Points = list[Point]`
    if not isinstance(schema, type) and get_origin(schema) is None:
        raise ValueError(f"json_schema is {schema!r}, must be a JSON schema, its text, or a type")
    try:
        return Wanted(Held("json_schema", _closed(schema_of_type(schema))), msgspec.json.Decoder(schema).decode)
    except TypeError as error:
        if _has_models(schema):
            return _of_pydantic(schema)
        raise ValueError(f"json_schema is {schema!r}, of which no JSON schema can be made: {error}") from None


def _has_models(schema: Any) -> bool:
    """Whether a type is made of Pydantic's models."""
    return hasattr(schema, "model_json_schema") or any(map(_has_models, get_args(schema)))


def _of_pydantic(schema: Any) -> Wanted:
    from pydantic import TypeAdapter

    adapter = TypeAdapter(schema)
    return Wanted(Held("json_schema", _closed(adapter.json_schema())), adapter.validate_json)


def _closed(schema: Any) -> Any:
    """Of a type: objects have its fields only, for others would be lost in the instance."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    fields = schema.get("properties")
    closed = {"additionalProperties": False} if isinstance(fields, dict) and schema.get("type") == "object" else {}
    return closed | {name: _closed(value) for name, value in schema.items()}
