"""Decimals of a schema that no double is. Such a number may be a bound, but an output could not have its digits."""

from decimal import Decimal


class Rounded(float):
    """The nearest double, and the text of the number that it is not."""

    text: str


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
