r"""Which code points one character of a regular expression may be: a Leaf as ranges. What it means is Python's `re`.

Categories (\d \s \w) are asked of `re` itself, once each; any case (?i) follows its tables.
Surrogates are no text, so they are in no set.
"""

import re
from bisect import bisect_left, bisect_right

from ramet.runtime.grammar.charsets import Ranges, cases, escape_class, outside, union
from ramet.runtime.text.automaton import AutomatonLeaf

Range = tuple[int, int]  # the first and the last code point

SURROGATES = (0xD800, 0xDFFF)


def code_points(leaf: AutomatonLeaf) -> Ranges:
    named: list[Range] = []
    ranges: list[Range] = []
    for item in leaf.items:
        match item:
            case str():
                named += escape_class(item, leaf.flags & re.ASCII)
            case int():
                ranges.append((item, item))
            case _:
                ranges.append(item)
    if leaf.flags & re.IGNORECASE:  # not what is named: U+0345 is in \W, and the iota that it is a case of is not
        ranges = _any_case(ranges, leaf.flags)
    found = union(tuple(named), tuple(ranges))
    others = found if leaf.negated else outside(found)
    return outside(union(others, (SURROGATES,)))


def _any_case(ranges: list[Range], flags: int) -> list[Range]:
    cased, same = cases(flags & re.ASCII)
    members = (code for first, last in ranges for code in cased[bisect_left(cased, first) : bisect_right(cased, last)])
    return [*ranges, *((other, other) for code in members for other in same[code])]
