"""What is wrong with JSON that cannot be read: a syntax error, or a number beyond float64.

Such a number is refused in every field, also in those whose numbers keep their digits.
"""

import re
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import orjson

from ramet.ipc.params import SHOWN, quoted
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body_items import Bytes

BEYOND_FLOAT64 = "number is infinity when parsed as double"  # orjson's words
MAX_FLOAT = "1.7976931348623157e308"
MAX_LEVELS = 8  # of the place that is shown
MAX_BYTES = 1 << 16  # of a part of the body that is searched; a larger one would take others' time
MAX_NAME = 64  # characters of a field's name; the client chose it

_NUMBER = re.compile(r"[-+.\deE]*")
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


def of_body(error: orjson.JSONDecodeError, data: Bytes) -> ClientError:
    """The refusal of a body that is `data`."""
    if error.msg == BEYOND_FLOAT64:
        return ClientError(_place_of_number(data), _number(error, " of the body"))
    return ClientError("body", f"is not valid JSON: {error.msg}{_near(error, data)}")


def of_text(place: str, shown: str, error: orjson.JSONDecodeError) -> ClientError:
    """The refusal of a JSON text inside a body, at `place`."""
    if error.msg == BEYOND_FLOAT64:
        return ClientError(place, _number(error))
    return ClientError(place, f"is {shown}, which is not valid JSON: {error.msg}")


def _number(error: orjson.JSONDecodeError, where: str = "") -> str:
    found = _NUMBER.match(error.doc, error.pos, error.pos + SHOWN + 1)
    text = found[0] if found is not None else ""
    number = text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
    return f"has the number {number} at character {error.pos}{where}, must be in [-{MAX_FLOAT}, {MAX_FLOAT}]"


def _place_of_number(data: Bytes) -> str:
    """The place of a number beyond float64 in a body, as far as its names can be shown; otherwise "body"."""
    place, part = "", memoryview(data)
    for level in range(MAX_LEVELS):
        if level and len(part) > MAX_BYTES:
            break
        step, part = next(((step, inner) for step, inner in _inner(part) if not _is_readable(inner)), ("", part))
        if not step:
            break
        place += step
    return place.removeprefix(".") or "body"


def _inner(part: memoryview) -> Iterator[tuple[str, memoryview]]:
    """The members of an object or the entries of a list, each with the step to it. An empty step ends a place."""
    try:
        yield from ((_step(name), memoryview(raw)) for name, raw in _members(part).items())
    except (ValueError, RecursionError):  # it is no object, or more is wrong with it
        with suppress(ValueError, RecursionError):
            yield from ((f"[{i}]", memoryview(raw)) for i, raw in enumerate(_items(part)))


def _step(name: str) -> str:
    return f".{name}" if len(name) <= MAX_NAME and name.isidentifier() else ""


def _is_readable(part: memoryview) -> bool:
    try:
        orjson.loads(part)
    except orjson.JSONDecodeError:
        return False
    return True


def _near(error: orjson.JSONDecodeError, data: Bytes) -> str:
    """The characters around a syntax error: they hold the field's name. The position counts characters, not bytes."""
    text = error.doc or data[:64].decode("utf-8", "replace")  # no text: the bytes are no UTF-8
    around = text[max(0, error.pos - 30) : error.pos + 10].strip()
    return f" near {quoted(around)}" if around else ""
