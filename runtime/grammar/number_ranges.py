"""JSON numbers between two bounds, digit by digit. Written without exponents where there is a bound."""

from dataclasses import dataclass
from decimal import Decimal

from ramet.runtime.grammar.tree import Alt, Chars, Node, Repeat, Seq, either, literal, optional

DIGIT = Chars(((48, 57),))
NOT_ZERO = Chars(((49, 57),))
ZERO = literal("0")
MINUS = literal("-")
DIGITS = Repeat(DIGIT, 0, None)
NATURAL = Alt((ZERO, Seq((NOT_ZERO, DIGITS))))
INTEGER = Alt((ZERO, Seq((optional(MINUS), NOT_ZERO, DIGITS))))
FRACTION = optional(Seq((literal("."), Repeat(DIGIT, 1, None))))
EXPONENT = optional(Seq((Chars(((69, 69), (101, 101))), optional(Chars(((43, 43), (45, 45)))), Repeat(DIGIT, 1, 2))))
NUMBER = Seq((optional(MINUS), NATURAL, FRACTION, EXPONENT))


@dataclass(frozen=True, slots=True)
class Bound:
    value: Decimal
    strict: bool  # the value itself is left out


def integers(least: int | None, most: int | None) -> Node | None:
    """Canonical integers in [least, most]; None: there is none."""
    if least is None and most is None:
        return INTEGER
    parts: list[Node] = []
    if least is None or least < 0:
        negative = naturals(max(1, -most) if most is not None else 1, None if least is None else -least)
        parts += [] if negative is None else [Seq((MINUS, negative))]
    if most is None or most >= 0:
        positive = naturals(max(0, least or 0), most)
        parts += [] if positive is None else [positive]
    return either(*parts) if parts else None


def naturals(least: int, most: int | None) -> Node | None:
    """Integers in [least, most], neither of which is negative."""
    if most is not None and least > most:
        return None
    options: list[Node] = []
    length = len(str(least))
    while most is None or length <= len(str(most)):
        low = max(least, 10 ** (length - 1) if length > 1 else 0)
        if most is None and low != least:
            options.append(Seq((NOT_ZERO, Repeat(DIGIT, length - 1, None))))
            break
        high = 10**length - 1 if most is None else min(most, 10**length - 1)
        options.append(same_length(str(low), str(high)))
        length += 1
    return either(*options)


def same_length(low: str, high: str) -> Node:
    """Digit strings between two of the same length."""
    if low.strip("0") == "" and high.strip("9") == "":
        return Repeat(DIGIT, len(low), len(low))
    if low[0] == high[0]:
        return literal(low) if low == high else Seq((literal(low[0]), same_length(low[1:], high[1:])))
    rest = len(low) - 1
    options: list[Node] = []
    first, last = int(low[0]), int(high[0])
    if low[1:].strip("0"):
        options.append(Seq((literal(low[0]), same_length(low[1:], "9" * rest))))
        first += 1
    if high[1:].strip("9"):
        options.append(Seq((literal(high[0]), same_length("0" * rest, high[1:]))))
        last -= 1
    if first <= last:
        options.append(Seq((Chars(((48 + first, 48 + last),)), Repeat(DIGIT, rest, rest))))
    return either(*options)


def numbers(low: Bound | None, high: Bound | None) -> Node | None:
    """Numbers between two bounds; None: there is none."""
    if low is None and high is None:
        return NUMBER
    zero = Bound(Decimal(0), False)
    parts: list[Node] = []
    if low is None or low.value < 0:
        nearest = Bound(high.value.copy_negate(), high.strict) if high and high.value < 0 else Bound(Decimal(0), True)
        negative = magnitudes(nearest, None if low is None else Bound(low.value.copy_negate(), low.strict))
        parts += [] if negative is None else [Seq((MINUS, negative))]
    if high is None or high.value >= 0:
        positive = magnitudes(low if low and low.value >= 0 else zero, high)
        parts += [] if positive is None else [positive]
    return either(*parts) if parts else None


Rest = tuple[str, bool] | None  # the digits of a bound that are still to be compared, and whether it is strict


def magnitudes(low: Bound, high: Bound | None) -> Node | None:
    low_int, low_rest = split(low)
    options: list[Node] = []
    if high is None:
        options += with_fraction(literal(str(low_int)), low_rest, None)
        above = naturals(low_int + 1, None)
        options += [] if above is None else [Seq((above, FRACTION))]
        return either(*options)
    high_int, high_rest = split(high)
    if low_int == high_int:
        options += with_fraction(literal(str(low_int)), low_rest, high_rest)
    elif low_int < high_int:
        options += with_fraction(literal(str(low_int)), low_rest, None)
        between = naturals(low_int + 1, high_int - 1)
        options += [] if between is None else [Seq((between, FRACTION))]
        options += with_fraction(literal(str(high_int)), None, high_rest)
    return either(*options) if options else None


def split(bound: Bound) -> tuple[int, Rest]:
    whole, _, fraction = f"{bound.value:f}".partition(".")
    return int(whole), (fraction.rstrip("0"), bound.strict)


def with_fraction(whole: Node, low: Rest, high: Rest) -> list[Node]:
    empty, more = fractions(low, high)
    return ([whole] if empty else []) + ([Seq((whole, literal("."), more))] if more is not None else [])


def fractions(low: Rest, high: Rest) -> tuple[bool, Node | None]:
    """Whether no digit may follow, and the digits that may."""
    if low == ("", False):
        low = None
    if high is not None and high[0] == "":
        fits = low is None and not high[1]
        return fits, Repeat(ZERO, 1, None) if fits else None
    if high is None and low is None:
        return True, Repeat(DIGIT, 1, None)
    if high is None and low == ("", True):
        return False, Seq((Repeat(ZERO, 0, None), NOT_ZERO, DIGITS))
    least = int(low[0][:1] or "0") if low is not None else 0
    most = int(high[0][:1]) if high is not None else 9
    options: list[Node] = []
    for first, last in sorted({(least, least), (most, most), (least + 1, most - 1)}):
        if not least <= first <= last <= most:
            continue
        rest_low = (low[0][1:], low[1]) if low is not None and first == least else None
        rest_high = (high[0][1:], high[1]) if high is not None and last == most else None
        empty, more = fractions(rest_low, rest_high)
        digit = Chars(((48 + first, 48 + last),))
        options += [digit] if empty else []
        options += [Seq((digit, more))] if more is not None else []
    return low is None, either(*options) if options else None
