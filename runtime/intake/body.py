"""A request's body: bytes -> a JSON object -> a typed struct.

Decides what is too large, too deep or of the wrong type, and how that is said. Knows no endpoint.
"""

import re
from collections.abc import Collection
from typing import Any, TypeVar

import msgspec
import orjson

from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError

T = TypeVar("T")
MAX_OPENED = 500_000  # objects and arrays: each costs a fraction of a microsecond, and nobody else is served then
MAX_DEPTH = 64
_MISMATCH = re.compile(r"Expected `(.+?)`(?: (?!got)(.+?))?(?:, got `.+?`)?(?: - at `\$\.?(.*)`)?$")
_WHERE = re.compile(r"(.*?)(?: - at `(?:\$\.?)?(.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.+?)`(?: - at `\$\.?(.*)`)?$")
_WORDS = {
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "array": "a list",
    "object": "an object",
}


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
    """The object as a struct. A known key of the wrong type is a ClientError that names it; others are ignored."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise _explained(value, str(error)) from None


def one_of(place: str, value: str, words: Collection[str]) -> str:
    """A word that must be one of these."""
    if value not in words:
        raise ClientError(place, f"is {shown(value)}, must be {' or '.join(repr(word) for word in words)}")
    return value


def _explained(value: Any, text: str) -> ClientError:
    """What msgspec says, as we say it."""
    if missing := _MISSING.match(text):
        return ClientError(".".join(name for name in (missing[2], missing[1]) if name), "is missing")
    mismatch = _MISMATCH.match(text)
    if mismatch is None:
        found = _WHERE.fullmatch(text)
        assert found is not None, text
        place, what = found[2] or "body", found[1]
        if what.startswith("Invalid enum value"):
            return ClientError(place, f"is {shown(_at(value, place))}, must be one of the values in /openapi.json")
        return ClientError(place, what[:1].lower() + what[1:], "see /openapi.json")
    place = mismatch[3] or "body"
    words = [word for word in mismatch[1].split(" | ") if word != "null"]
    wanted = " or ".join(_WORDS.get(word, word) for word in words)
    bound = f" {mismatch[2]}" if mismatch[2] else ""  # such as: >= 0, of length <= 5, matching regex '...'
    return ClientError(place, f"is {shown(_at(value, place))}, must be {wanted}{bound}")


def _at(value: Any, place: str) -> Any:
    """The value at a path such as `sampling_params[1]`."""
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", place):
        if index:
            value = value[int(index)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
    return value


def _near(data: bytes, position: int) -> str:
    """The characters around a syntax error: they hold the field's name. The position counts characters, not bytes."""
    text = data.decode("utf-8", "replace")
    around = text[max(0, position - 30) : position + 10].strip()
    return f" near {around!r}" if around else ""
