"""JSON whose numbers keep their digits, for what a model or a client reads again: tools, schemas, arguments of calls.

Decides what stands for a number: an int of any size, a float where that is the very number, else a Decimal.
"""

import json
import os
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
MAX_EXPONENT = 9999  # of a Decimal: who makes an int of it, or writes it without an exponent, needs so much memory
SURE = 15  # digits that each float keeps
MARK = f"NUMBER_{os.urandom(8).hex()}_"  # no client knows it
_MARKED = re.compile(f'"{MARK}([^"]*)"')
# every digit is 0, a point is one as well, and signs are left out: so a number is long or has a large exponent
_SHAPES = bytes(ord("0") if chr(i) in "0123456789." else ord("e") if chr(i) in "eE" else ord(" ") for i in range(256))
_LONG = b"0" * 16, b"0e000"  # at least; digits that a float may not hold, and what may be beyond its range


def _number(text: str) -> float | Decimal:
    value = float(text)
    if (len(text) <= SURE and "e" not in text and "E" not in text) or repr(value) == text:
        return value  # without a Decimal, which takes ten times as long: a body may have millions of numbers
    exact = Decimal(text)
    if exact == Decimal(repr(value)):
        return value
    if abs(exact.adjusted()) <= MAX_EXPONENT:
        return exact
    if exact.adjusted() > 0:
        raise ValueError(f"{text} is beyond 1e{MAX_EXPONENT}")
    return value


def decoder_of(type_: type[T]) -> Callable[[bytes | str], T]:
    """Raises ValueError, and RecursionError for what nests too deep."""
    decode = msgspec.json.Decoder(type_, float_hook=_number).decode

    def exact(data: bytes | str) -> T:
        try:
            return decode(data)
        except ArithmeticError as error:  # an exponent that no Decimal has
            raise ValueError(f"a number is too large: {error}") from None

    return exact


encode = msgspec.json.Encoder(decimal_format="number").encode  # of a struct, to bytes
_decode = decoder_of(object)


def loads(data: bytes | str) -> Any:
    """Raises ValueError, and RecursionError for what nests too deep."""
    return _decode(data)


def dumps(value: Any, **options: Any) -> str:
    """As json.dumps. Raises TypeError for what is no JSON, and ValueError."""
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
    """Whether JSON may have a number that no float and no integer of 64 bits is. Costs about 1 ns a byte."""
    shapes = data.translate(_SHAPES, b"+-")
    return any(shape in shapes for shape in _LONG)
