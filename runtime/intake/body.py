"""A request's body: bytes -> a JSON object -> a typed struct.

Decides what is too large, too deep, of the wrong type or not built. Knows no endpoint.
"""

from typing import Any, TypeVar

import msgspec
import orjson

from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.explain import explained
from ramet.runtime.intake.limits import MAX_DEPTH, MAX_OPENED
from ramet.runtime.intake.unbuilt import refuse_unbuilt

T = TypeVar("T")


def parse_object(data: bytes) -> dict[str, Any]:
    opened = data.count(b"[") + data.count(b"{")
    if opened > MAX_OPENED:
        raise ClientError("body", f"has {opened} opening brackets, must have at most {MAX_OPENED}")
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ClientError("body", f"is not valid JSON: {error.msg}{_near(data, error.pos)}") from None
    if not isinstance(value, dict):
        raise ClientError("body", f"is {shown(value)}, must be a JSON object")
    if opened > MAX_DEPTH and deeper_than(MAX_DEPTH, value):
        raise ClientError("body", f"is nested deeper than {MAX_DEPTH} levels")
    return value


def deeper_than(levels: int, value: Any) -> bool:
    """Whether a JSON value nests deeper, looked at level by level."""
    inside = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        children = (each.values() if isinstance(each, dict) else each for each in inside)
        inside = [child for each in children for child in each if child.__class__ is dict or child.__class__ is list]
        if not inside:
            break
    return bool(inside)


def convert(value: dict[str, Any], type_: type[T]) -> T:
    """The object as a struct; unknown keys are ignored. Raises ClientError for what is wrong or not built."""
    try:
        body = msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise explained(value, type_, str(error)) from None
    refuse_unbuilt(body, value)
    return body


def _near(data: bytes, position: int) -> str:
    """The characters around a syntax error: they hold the field's name. The position counts characters, not bytes."""
    text = data.decode("utf-8", "replace")
    around = text[max(0, position - 30) : position + 10].strip()
    return f" near {around!r}" if around else ""
