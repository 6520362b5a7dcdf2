"""JSON whose numbers keep their digits, for values that a model or a client will read: tools, schemas, call arguments.

Decides what represents a number: an int of any size, a float if it is exactly the number, otherwise a Decimal.
"""

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, TypeVar

import msgspec
import orjson

T = TypeVar("T")
Bytes = bytes | bytearray | memoryview
MAX_EXPONENT = 9999  # bound for a Decimal: an int of it, or its text without an exponent, takes that many bytes
SURE = 15  # a float keeps all digits of a number that has at most so many
DIGITS = 17  # and of none that needs more
MAX_NORMAL = 300  # characters of a number without exponent, of which a float keeps SURE digits however small it is
MARK = f"NUMBER_{os.urandom(8).hex()}"  # stands for a number in a text; no client can guess it
BETWEEN = f"BETWEEN_{os.urandom(8).hex()}"  # stands between two values; nor this
# digits and points become 0, E becomes e, signs are removed: this shows which numbers are long or have a large exponent
MAX_SHAPE = 20  # bytes of the part of a number that is looked for, with its signs
AT_ONCE = 1 << 18  # bytes that are looked at in one call, which keeps Python's lock
_SHAPES = bytes(ord("0") if chr(i) in "0123456789." else ord("e") if chr(i) in "eE" else ord(" ") for i in range(256))
_DIGITS, _EXPONENT = b"0" * 16, b"0e000"  # more than a float may keep, and one that may be out of its range
_AS_JSON_DOES = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_NO_NUMBER = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")  # NaN and infinity in MessagePack, and seldom else
SHORTEST = len(_EXPONENT)  # bytes of a number that may be rounded


def _number(text: str) -> float | Decimal:
    """A body may have many thousands of numbers: at most one Decimal is made of one that has no exponent, and of most
    that a float keeps none. Only a Decimal tells whether a float keeps one that is written with another exponent.
    """
    has_exponent = "e" in text or "E" in text
    digits = text.lower().partition("e")[0] if has_exponent else text
    size = len(digits.strip("-0."))  # of the digits, and perhaps the point
    if size > DIGITS + 1:
        return _decimal(text)
    try:
        value: float = orjson.loads(text)  # float() and repr() take ten times as long for 17 digits
    except orjson.JSONDecodeError:  # it is beyond a float's range
        return _decimal(text)
    if not has_exponent and size <= SURE and len(text) <= MAX_NORMAL:
        return value
    written = orjson.dumps(value).decode()
    if written == text:
        return value
    if not has_exponent and "e" not in written:
        return value if written.rstrip("0") == text.rstrip("0") else _decimal(text)
    exact = _decimal(text)
    return value if exact == Decimal(written) else exact


def _decimal(text: str) -> float | Decimal:
    """The number exactly, unless its exponent is too far below zero."""
    try:
        exact = Decimal(text)
        if -MAX_EXPONENT <= exact.adjusted() <= MAX_EXPONENT:
            return exact
    except ArithmeticError:  # the exponent is out of a Decimal's range
        pass
    nearest = float(text)
    if math.isinf(nearest):
        raise ValueError(f"{text:.60} is beyond 1e{MAX_EXPONENT}")
    return nearest


def _spelt(text: str) -> float | Decimal | msgspec.Raw:
    """A number that is only written again stays as it is spelt, unless its exponent may be too large."""
    return _number(text) if "e" in text or "E" in text or len(text) > MAX_EXPONENT else msgspec.Raw(text.encode())


def decoder_of(type_: type[T]) -> Callable[[Bytes | str], T]:
    """Raises ValueError, and RecursionError for what nests too deep."""
    plain, decode = msgspec.json.Decoder(type_).decode, msgspec.json.Decoder(type_, float_hook=_number).decode

    def exact(data: Bytes | str) -> T:
        if len(data) < SHORTEST:
            return plain(data)
        given = data.encode() if isinstance(data, str) else bytes(data)
        if not may_round(given):
            return plain(given)
        return decode(given)

    return exact


encode = msgspec.json.Encoder(decimal_format="number").encode  # returns the JSON of a struct as bytes
_decode = decoder_of(object)
_decode_spelt = msgspec.json.Decoder(object, float_hook=_spelt).decode


def loads(data: bytes | str) -> Any:
    """Raises ValueError, and RecursionError for what nests too deep."""
    return _decode(data)


def read(value: Any) -> Any:
    """What a value is JSON of, if it is JSON that nobody had to look into so far."""
    return loads(bytes(value)) if isinstance(value, msgspec.Raw) else value


def read_members(value: Any) -> Any:
    """An object with all of its members read; any other value as it is."""
    if not isinstance(value, dict) or msgspec.Raw not in map(type, value.values()):
        return value
    return {name: read(each) for name, each in value.items()}


def dumps(value: Any, **options: Any) -> str:
    """Works like json.dumps. Raises TypeError for a value that JSON cannot hold, and ValueError."""
    return _dumps(value, options, None)


def compact(value: Any) -> str:
    """What `dumps` writes without blanks. Takes ten times as long as `ordinary`."""
    options = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
    return _dumps(value, options, lambda unread: encode(_decode_spelt(bytes(unread))).decode())


def ordinary(value: Any) -> str | None:
    """What `compact` makes of a value without Decimals, unread JSON, integers beyond 64 bits, or what JSON cannot hold,
    but floats may be spelt in another way: 1e-5 for 1e-05. None for any other value.
    """
    try:
        text = orjson.dumps(value, option=_AS_JSON_DOES)
    except TypeError:
        return None
    return None if b"null" in text and has_no_number(value) else text.decode()


def has_no_number(value: Any) -> bool:
    """Whether NaN or infinity, which orjson writes as null, is in a value of JSON's types, Decimals and unread JSON."""
    try:
        if _NO_NUMBER.search(msgspec.msgpack.encode(value)) is None:  # takes 2 ms for a million bytes
            return False
    except (OverflowError, TypeError):  # it has an integer beyond 64 bits, or a subclass of a type
        pass
    pending = [value]
    while pending:
        match pending.pop():
            case float() as number if not math.isfinite(number):
                return True
            case dict() as inner:
                pending += inner.values()
            case list() | tuple() as inner:
                pending += inner
    return False


def _dumps(value: Any, options: Mapping[str, Any], write_unread: Callable[[msgspec.Raw], str] | None) -> str:
    """`write_unread`: returns compact JSON. json.dumps takes six times as long where there are many Decimals."""
    found: list[Decimal | str] = []

    def marked(part: Any) -> Any:
        if isinstance(part, Decimal):
            found.append(part)
        elif not isinstance(part, msgspec.Raw):
            raise TypeError(f"Object of type {type(part).__name__} is not JSON serializable")
        elif write_unread is None:
            return read(part)
        else:
            found.append(write_unread(part))
        return MARK

    text = json.dumps(value, default=marked, **options)
    if not found:
        return text
    pieces = text.split(f'"{MARK}"')
    pieces[1:] = chain.from_iterable(zip(map(str, found), pieces[1:], strict=True))
    return "".join(pieces)


def dumps_each(values: Sequence[Any], ensure_ascii: bool = True) -> list[str]:
    """What `dumps` makes of each, in one call for all of them: there may be thousands."""
    if not values:
        return []
    text = dumps([piece for value in values for piece in (BETWEEN, value)], ensure_ascii=ensure_ascii)
    between = f', "{BETWEEN}", '
    return text[len(between) - 1 : -1].split(between)


def may_round(data: bytes | bytearray) -> bool:
    """Whether JSON may contain a number that neither a float nor a 64-bit integer can hold. Takes about 1 ns a byte."""
    if len(data) < SHORTEST:  # a chat may have thousands of short arguments
        return False
    for start in range(0, len(data), AT_ONCE):
        shapes = data[start : start + AT_ONCE + MAX_SHAPE].translate(_SHAPES, b"+-")
        if _DIGITS in shapes or _EXPONENT in shapes:
            return True
    return False
