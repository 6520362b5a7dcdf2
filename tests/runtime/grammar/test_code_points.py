r"""Which characters a leaf allows: against `re` itself."""

import re
import sys
from bisect import bisect_left, bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from ramet.runtime.grammar.charsets import LAST_LETTER, escape_class
from ramet.runtime.grammar.code_points import SURROGATES, code_points
from ramet.runtime.text.automaton import AutomatonLeaf

EVERY = [code for code in range(sys.maxunicode + 1) if not SURROGATES[0] <= code <= SURROGATES[1]]
CASED = [code for code in EVERY if len({chr(code), chr(code).lower(), chr(code).upper(), chr(code).casefold()}) > 1]
UNCASED = sorted(set(EVERY) - set(CASED))
FLAGS = [0, re.ASCII, re.IGNORECASE, re.IGNORECASE | re.ASCII]


def allowed(leaf: AutomatonLeaf, codes: list[int]) -> list[int]:
    """Of these code points, which are ascending."""
    parts = [codes[bisect_left(codes, first) : bisect_right(codes, last)] for first, last in code_points(leaf)]
    return [code for part in parts for code in part]


def by_re(leaf: AutomatonLeaf, codes: list[int]) -> list[int]:
    return list(map(ord, re.findall(leaf.source, "".join(map(chr, codes)), leaf.flags)))


@pytest.mark.parametrize("name", [r"\d", r"\s", r"\w"])
@pytest.mark.parametrize("flags", [0, re.ASCII])
def test_category_is_that_of_re(name: str, flags: int) -> None:
    leaf = AutomatonLeaf((name,), False, flags)
    assert allowed(leaf, EVERY) == by_re(leaf, EVERY)


@pytest.mark.parametrize("flags", FLAGS[2:])
def test_every_letter_in_any_case_is_that_of_re(flags: int) -> None:
    for code in CASED:
        leaf = AutomatonLeaf((code,), False, flags)
        assert allowed(leaf, CASED) == by_re(leaf, CASED), hex(code)


def test_no_letter_is_beyond_the_last_one() -> None:
    assert max(CASED) <= LAST_LETTER
    assert not re.search(r"[\w\s]", "".join(map(chr, range(LAST_LETTER + 1, sys.maxunicode + 1))))
    assert max(last for _, last in escape_class(r"\w", 0)) < LAST_LETTER


# `re` fails where an upper-case letter of a later plane is in a class with others: (?i)[A𐐀] does not match 𐐀
FIRST_PLANE = [code for code in CASED if code < 0x10000]
CODES = st.one_of(st.sampled_from(FIRST_PLANE), st.integers(0, 0x17F), st.sampled_from(UNCASED))
NEAR = CODES.flatmap(lambda code: st.integers(0, 300).map(lambda width: (code, min(code + width, sys.maxunicode))))
ITEMS = st.lists(st.one_of(CODES, NEAR, st.sampled_from([r"\d", r"\D", r"\s", r"\S", r"\w", r"\W"])), max_size=5)


@examples(100, 5000)
@given(ITEMS, st.booleans(), st.sampled_from(FLAGS), st.lists(CODES, max_size=50))
def test_class_is_that_of_re(
    items: list[int | tuple[int, int] | str], negated: bool, flags: int, codes: list[int]
) -> None:
    leaf = AutomatonLeaf(tuple(items), negated or not items, flags)
    asked = sorted({*codes, *FIRST_PLANE})
    assert allowed(leaf, asked) == by_re(leaf, asked)
