r"""Which code points one character of a regular expression may be: a Leaf as ranges. What it means is Python's `re`.

Categories (\d \s \w) are asked of `re` itself, once each; any case (?i) follows its tables.
Surrogates are no text, so they are in no set.
"""

import re
import sys
from bisect import bisect_left, bisect_right
from functools import cache

from ramet.runtime.grammar.charsets import LAST_LETTER, Ranges, cases, union
from ramet.runtime.text.automaton import AutomatonLeaf

Range = tuple[int, int]  # the first and the last code point

SURROGATES = (0xD800, 0xDFFF)


def code_points(leaf: AutomatonLeaf) -> Ranges:
    named: list[Range] = []
    ranges: list[Range] = []
    for item in leaf.items:
        match item:
            case str():
                named += category(item, leaf.flags & re.ASCII)
            case int():
                ranges.append((item, item))
            case _:
                ranges.append(item)
    if leaf.flags & re.IGNORECASE:  # not what is named: U+0345 is in \W, and the iota that it is a case of is not
        ranges = _any_case(ranges, leaf.flags)
    found = union(tuple(named), tuple(ranges))
    outside = found if leaf.negated else complement(found)
    return complement(union(outside, (SURROGATES,)))


def complement(ranges: Ranges) -> Ranges:
    """Of all code points, NUL and surrogates among them."""
    gaps, start = [], 0
    for first, last in ranges:
        if start < first:
            gaps.append((start, first - 1))
        start = last + 1
    if start <= sys.maxunicode:
        gaps.append((start, sys.maxunicode))
    return tuple(gaps)


@cache
def category(name: str, ascii_flag: int) -> Ranges:
    r"""Of \d \s \w, and of \D \S \W, their complements."""
    if name[1].isupper():
        return complement(category(name.lower(), ascii_flag))
    last = 0x7F if ascii_flag else LAST_LETTER
    every = "".join(map(chr, range(last + 1)))
    return tuple((run.start(), run.end() - 1) for run in re.finditer(f"{name}+", every, ascii_flag))


def _any_case(ranges: list[Range], flags: int) -> list[Range]:
    cased, same = cases(flags & re.ASCII)
    members = (code for first, last in ranges for code in cased[bisect_left(cased, first) : bisect_right(cased, last)])
    return [*ranges, *((other, other) for code in members for other in same[code])]
