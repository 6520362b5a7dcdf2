"""Sets of characters as ranges of code points, and what Python's classes mean.

`\\d`, `\\w` and `\\s` stand for ASCII, as in JSON Schema's dialect; their complements leave out what Unicode adds, so
that an output matches in both readings. What is left out of a complement must be at least what Python's class has:
each function takes `wide`, whether too many characters do less harm than too few.
"""

import re
from functools import cache

Ranges = tuple[tuple[int, int], ...]  # inclusive, ascending, not touching

UNIVERSE: Ranges = ((1, 0xD7FF), (0xE000, 0x10FFFF))  # without NUL and surrogates
NOT_NEWLINE: Ranges = ((1, 9), (11, 0xD7FF), (0xE000, 0x10FFFF))
ECMA_SPACES: Ranges = ((0xFEFF, 0xFEFF),)  # a space for JSON Schema's dialect and not for Python
ASCII_CLASSES: dict[str, Ranges] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 13), (32, 32)),
}
CASED_BEYOND_ASCII = {"i": "İı", "k": "\u212a", "s": "ſ"}  # what re.IGNORECASE takes for a letter beside ASCII


def union(*sets: Ranges) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(part for ranges in sets for part in ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def intersection(left: Ranges, right: Ranges) -> Ranges:
    return tuple(sorted((max(a, c), min(b, d)) for a, b in left for c, d in right if max(a, c) <= min(b, d)))


def complement(ranges: Ranges) -> Ranges:
    gaps, start = [], 0
    for low, high in ranges:
        gaps.append((start, low - 1))
        start = high + 1
    gaps.append((start, 0x10FFFF))
    return intersection(UNIVERSE, tuple(gap for gap in gaps if gap[0] <= gap[1]))


def without(left: Ranges, right: Ranges) -> Ranges:
    return intersection(left, complement(right))


def of_text(text: str) -> Ranges:
    return union(tuple((ord(char), ord(char)) for char in text))


@cache
def unicode_class(letter: str) -> Ranges:
    """What `\\d`, `\\w` or `\\s` matches in Python, and for spaces in JSON Schema's dialect too. Some 50 ms, once."""
    everything = "".join(map(chr, range(0x110000)))
    found = tuple((match.start(), match.end() - 1) for match in re.finditer(rf"\{letter}+", everything))
    return union(found, ECMA_SPACES) if letter == "s" else found


def category(letter: str, wide: bool, ascii_only: bool) -> Ranges:
    """The class of the escape d, D, s, S, w or W."""
    small, negated = letter.lower(), letter.isupper()
    ranges = ASCII_CLASSES[small] if ascii_only or wide == negated else unicode_class(small)
    return complement(ranges) if negated else ranges


def both_cases(ranges: Ranges, wide: bool) -> Ranges | None:
    """`ranges` without regard to case. None: too wide a set is asked for, and it has letters beyond ASCII."""
    upper, lower = intersection(ranges, ((65, 90),)), intersection(ranges, ((97, 122),))
    swapped = tuple((a + 32, b + 32) for a, b in upper) + tuple((a - 32, b - 32) for a, b in lower)
    every = union(ranges, swapped)
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return union(every, _cases_of(chr(ranges[0][0])))
    if not wide:
        return every
    if ranges and ranges[-1][1] > 127:
        return None
    return union(every, *(_cases_of(chr(c)) for a, b in intersection(every, ((97, 122),)) for c in range(a, b + 1)))


def _cases_of(char: str) -> Ranges:
    """All characters that Python takes for `char` when it ignores case."""
    candidates = {char, char.lower(), char.upper(), char.title(), char.casefold()}
    for letter, more in CASED_BEYOND_ASCII.items():
        if candidates & {letter, *more}:
            candidates |= {letter, letter.upper(), *more}
    pattern = re.compile(re.escape(char), re.IGNORECASE)
    return union(*(((ord(c), ord(c)),) for c in candidates if len(c) == 1 and pattern.fullmatch(c)))
