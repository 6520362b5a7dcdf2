"""Decimals of a schema that no double is. They may be bounds, but an output could not have their digits."""

from decimal import Decimal
from typing import Any

MAX_DIGITS = 64  # behind the point, for a bound: each is a level of its grammar
SHOWN = 60


class Rounded(float):
    """The nearest double, which compares and prints as the number that it is not: `text`."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __lt__(self, other: Any) -> bool:
        return exact(self) < exact(other)

    def __le__(self, other: Any) -> bool:
        return exact(self) <= exact(other)

    def __gt__(self, other: Any) -> bool:
        return exact(self) > exact(other)

    def __ge__(self, other: Any) -> bool:
        return exact(self) >= exact(other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | float) and exact(self) == exact(other)

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def has_few_digits(self) -> bool:
        try:
            exponent = Decimal(self.text).as_tuple().exponent
        except ArithmeticError:  # an exponent that no Decimal has
            return False
        return isinstance(exponent, int) and exponent >= -MAX_DIGITS

    @property
    def shown(self) -> str:
        return self.text if len(self.text) <= SHOWN else f"{self.text[:SHOWN]}..."


def exact(number: float) -> Decimal:
    """The decimal that a number of JSON is written as, or the nearest double where no Decimal has its exponent."""
    try:
        return Decimal(str(number))
    except ArithmeticError:
        return Decimal(float(number))


def number_of(text: str) -> float:
    """What JSON's `text` of a number with a point or an exponent stands for."""
    value = float(text)
    if _is_same(text, value):
        return value
    rounded = Rounded(value)
    rounded.text = text
    return rounded


def _is_same(text: str, value: float) -> bool:
    """A double stands for the decimal that it is written as."""
    try:
        return repr(value) == text or Decimal(text) == Decimal(repr(value))
    except ArithmeticError:  # an exponent that no Decimal has
        return False
