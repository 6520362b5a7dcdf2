"""Numbers between bounds: what the tree takes is what lies between them."""

import re
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.grammar.number_ranges import Bound, integers, numbers
from ramet.runtime.grammar.regex import write
from ramet.runtime.grammar.tree import Node

INTEGERS = st.one_of(st.integers(-12, 12), st.integers(-120_000, 120_000), st.sampled_from([10**9, 2**31 - 1, 2**53]))
DECIMALS = st.builds(lambda n, places: Decimal(n).scaleb(-places), st.integers(-99_999, 99_999), st.integers(0, 4))
BOUNDS = st.none() | st.builds(Bound, DECIMALS, st.booleans())
STEPS = [Decimal(0), Decimal("0.00001"), Decimal("-0.00001"), Decimal(1), Decimal(-1)]


def takes(node: Node | None, text: str) -> bool:
    return node is not None and re.fullmatch(write(node), text) is not None


@given(st.none() | INTEGERS, st.none() | INTEGERS, st.lists(INTEGERS, max_size=20))
def test_integers(least: int | None, most: int | None, values: list[int]):
    node = integers(least, most)
    near = [bound + step for bound in (least, most) if bound is not None for step in (-1, 0, 1)]
    for value in values + near:
        between = (least is None or value >= least) and (most is None or value <= most)
        assert takes(node, str(value)) == between, value


@given(BOUNDS, BOUNDS, st.lists(DECIMALS, max_size=20))
def test_numbers(low: Bound | None, high: Bound | None, values: list[Decimal]):
    node = numbers(low, high)
    near = [bound.value + step for bound in (low, high) if bound is not None for step in STEPS]
    for value in values + near:
        above = low is None or value > low.value or (value == low.value and not low.strict)
        below = high is None or value < high.value or (value == high.value and not high.strict)
        text = f"{abs(value):f}" if value == 0 else f"{value:f}"
        for spelled in (text, text + ("0" if "." in text else ".00")):
            assert takes(node, spelled) == (above and below), spelled


def test_no_number_begins_with_zeros_or_ends_with_a_point():
    for node in (numbers(None, None), numbers(Bound(Decimal(-3), False), None), integers(0, None)):
        assert not any(takes(node, text) for text in ("01", "1.", ".5", "-", "", "+1", "00"))
