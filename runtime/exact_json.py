"""JSON whose numbers keep their digits, for values that a model or a client will read: tools, schemas, call arguments.

Decides what represents a number: an int of any size, a float if it is exactly the number, otherwise a Decimal.
"""

import json
import os
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar

import msgspec
import orjson

T = TypeVar("T")
MAX_EXPONENT = 9999  # bound for a Decimal: an int of it, or its text without an exponent, takes that many bytes
SURE = 15  # a float keeps all digits of a number that has at most so many
DIGITS = 17  # and of none that needs more
IN_RANGE = 300  # characters of a number without an exponent that cannot be beyond a float's range
MARK = f"NUMBER_{os.urandom(8).hex()}_"  # no client can guess it
_MARKED = re.compile(f'"{MARK}([^"]*)"')
# digits and points become 0, E becomes e, signs are removed: this shows which numbers are long or have a large exponent
_SHAPES = bytes(ord("0") if chr(i) in "0123456789." else ord("e") if chr(i) in "eE" else ord(" ") for i in range(256))
_LONG = b"0" * 16, b"0e000"  # more digits than a float may keep, and an exponent that may be out of its range


def _number(text: str) -> float | Decimal:
    """At most one Decimal is made of most numbers, and of those that a float keeps none: a body may have millions."""
    if "e" in text or "E" in text or len(text) > MAX_EXPONENT:
        return _with_exponent(text)
    if len(text) > DIGITS and len(text.strip("-0.")) > DIGITS + 1:  # digits that count, and perhaps the point
        return Decimal(text)
    if len(text) > IN_RANGE:
        return _with_exponent(text)
    value: float = orjson.loads(text)  # float() and repr() take ten times as long for 17 digits
    if len(text) <= SURE or (written := str(orjson.dumps(value), "ascii")) == text:
        return value
    if "e" in written:
        return _with_exponent(text)
    return value if written.rstrip("0") == text.rstrip("0") else Decimal(text)


def _with_exponent(text: str) -> float | Decimal:
    value, exact = float(text), Decimal(text)
    if exact == Decimal(repr(value)):
        return value
    if abs(exact.adjusted()) <= MAX_EXPONENT:
        return exact
    if exact.adjusted() > 0:
        raise ValueError(f"{text} is beyond 1e{MAX_EXPONENT}")
    return value


def decoder_of(type_: type[T]) -> Callable[[bytes | str], T]:
    """Raises ValueError, and RecursionError for what nests too deep."""
    plain, decode = msgspec.json.Decoder(type_).decode, msgspec.json.Decoder(type_, float_hook=_number).decode

    def exact(data: bytes | str) -> T:
        given = data.encode() if isinstance(data, str) else bytes(data)
        if not may_round(given):
            return plain(given)
        try:
            return decode(given)
        except ArithmeticError as error:  # the exponent is out of a Decimal's range
            raise ValueError(f"a number is too large: {error}") from None

    return exact


encode = msgspec.json.Encoder(decimal_format="number").encode  # returns the JSON of a struct as bytes
_decode = decoder_of(object)


def loads(data: bytes | str) -> Any:
    """Raises ValueError, and RecursionError for what nests too deep."""
    return _decode(data)


def read(value: Any) -> Any:
    """What a value is JSON of, if it is JSON that nobody had to look into so far."""
    return loads(bytes(value)) if isinstance(value, msgspec.Raw) else value


def dumps(value: Any, **options: Any) -> str:
    """Works like json.dumps. Raises TypeError for a value that JSON cannot hold, and ValueError."""
    found = False

    def marked(number: Any) -> str:
        nonlocal found
        if not isinstance(number, Decimal):
            raise TypeError(f"Object of type {type(number).__name__} is not JSON serializable")
        found = True
        return f"{MARK}{number}"

    text = json.dumps(value, default=marked, **options)
    return _MARKED.sub(r"\1", text) if found else text


def may_round(data: bytes | bytearray) -> bool:
    """Whether JSON may contain a number that neither a float nor a 64-bit integer can hold. Takes about 1 ns a byte."""
    shapes = data.translate(_SHAPES, b"+-")
    return any(shape in shapes for shape in _LONG)
