"""Sets of characters as ranges of code points, and what Python's classes mean.

`\\d`, `\\w` and `\\s` stand for ASCII, as in JSON Schema's dialect; their complements leave out what Unicode adds, so
that an output matches in both readings. What is left out of a complement must be at least what Python's class has:
each function takes `wide`, whether too many characters do less harm than too few.
"""

import re
import sys
import unicodedata
from _sre import unicode_tolower  # type: ignore[import-not-found]  # what `re` calls lower case has no public name
from collections import defaultdict
from functools import cache
from itertools import groupby
from re._casefix import _EXTRA_CASES  # type: ignore[import-not-found]  # lower case -> others with its upper case

Ranges = tuple[tuple[int, int], ...]  # inclusive, ascending, not touching

UNIVERSE: Ranges = ((1, 0xD7FF), (0xE000, 0x10FFFF))  # without NUL and surrogates
NOT_NEWLINE: Ranges = ((1, 9), (11, 0xD7FF), (0xE000, 0x10FFFF))
ECMA_SPACES: Ranges = ((0xFEFF, 0xFEFF),)  # a space for JSON Schema's dialect and not for Python
ASCII_CLASSES: dict[str, Ranges] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 13), (32, 32)),
}
CATEGORIES = {  # long name of a Unicode category -> short name
    "Letter": "L", "Cased_Letter": "LC", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm", "Other_Letter": "Lo", "Mark": "M", "Combining_Mark": "M", "Nonspacing_Mark": "Mn",
    "Spacing_Mark": "Mc", "Enclosing_Mark": "Me", "Number": "N", "Decimal_Number": "Nd", "digit": "Nd",
    "Letter_Number": "Nl", "Other_Number": "No", "Symbol": "S", "Math_Symbol": "Sm", "Currency_Symbol": "Sc",
    "Modifier_Symbol": "Sk", "Other_Symbol": "So", "Punctuation": "P", "punct": "P", "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd", "Open_Punctuation": "Ps", "Close_Punctuation": "Pe", "Initial_Punctuation": "Pi",
    "Final_Punctuation": "Pf", "Other_Punctuation": "Po", "Separator": "Z", "Space_Separator": "Zs",
    "Line_Separator": "Zl", "Paragraph_Separator": "Zp", "Other": "C", "Control": "Cc", "cntrl": "Cc", "Format": "Cf",
    "Surrogate": "Cs", "Private_Use": "Co", "Unassigned": "Cn",
}  # fmt: skip
LAST_LETTER = 0x3FFFF  # no letter, digit or space is beyond


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


def outside(ranges: Ranges) -> Ranges:
    """All other code points, NUL and surrogates among them."""
    starts, ends = [0, *(high + 1 for _, high in ranges)], [*(low - 1 for low, _ in ranges), sys.maxunicode]
    return tuple((start, end) for start, end in zip(starts, ends, strict=True) if start <= end)


def complement(ranges: Ranges) -> Ranges:
    """All other characters that an output may have."""
    return intersection(UNIVERSE, outside(ranges))


def without(left: Ranges, right: Ranges) -> Ranges:
    return intersection(left, complement(right))


def of_text(text: str) -> Ranges:
    return union(tuple((ord(char), ord(char)) for char in text))


@cache
def unicode_class(letter: str) -> Ranges:
    """What `\\d`, `\\w` or `\\s` matches in Python, and for spaces in JSON Schema's dialect too. Some 50 ms, once."""
    found = escape_class(rf"\{letter}", 0)
    return union(found, ECMA_SPACES) if letter == "s" else found


@cache
def escape_class(name: str, ascii_flag: int) -> Ranges:
    r"""What \d, \s and \w match in Python, and \D, \S and \W, their complements."""
    if name[1].isupper():
        return outside(escape_class(name.lower(), ascii_flag))
    every = "".join(map(chr, range((0x7F if ascii_flag else LAST_LETTER) + 1)))
    return tuple((run.start(), run.end() - 1) for run in re.finditer(f"{name}+", every, ascii_flag))


@cache
def of_categories() -> dict[str, Ranges]:
    """General category -> its characters. Some 0.2 s, once."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for name, run in groupby(range(0x110000), lambda code: unicodedata.category(chr(code))):
        codes = list(run)
        found[name].append((codes[0], codes[-1]))
    return {name: tuple(ranges) for name, ranges in found.items()}


def property_class(name: str) -> Ranges | None:
    """What ECMA-262's `\\p{name}` matches, of general categories. None: another property."""
    short = name.removeprefix("General_Category=").removeprefix("gc=")
    if name in ("Any", "ASCII"):
        return ((0, 0x10FFFF),) if name == "Any" else ((0, 127),)
    short = CATEGORIES.get(short, short)
    if short not in CATEGORIES.values():
        return None
    names = ("Lu", "Ll", "Lt") if short == "LC" else (short,)
    return union(*(ranges for each, ranges in of_categories().items() if each.startswith(names)))


def category(letter: str, wide: bool, ascii_only: bool) -> Ranges:
    """The class of the escape d, D, s, S, w or W."""
    small, negated = letter.lower(), letter.isupper()
    ranges = ASCII_CLASSES[small] if ascii_only or wide == negated else unicode_class(small)
    return complement(ranges) if negated else ranges


def both_cases(ranges: Ranges, wide: bool, ascii_only: bool) -> Ranges | None:
    """`ranges` without regard to case. None: too wide a set is asked for, and it has letters beyond ASCII.

    `ascii_only`: no letter beyond ASCII has another case.
    """
    upper, lower = intersection(ranges, ((65, 90),)), intersection(ranges, ((97, 122),))
    swapped = tuple((a + 32, b + 32) for a, b in upper) + tuple((a - 32, b - 32) for a, b in lower)
    every = union(ranges, swapped)
    if ascii_only:
        return every
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return union(every, _cases_of(ranges[0][0]))
    if not wide:
        return every
    if ranges and ranges[-1][1] > 127:
        return None
    return union(every, *(_cases_of(c) for a, b in intersection(every, ((97, 122),)) for c in range(a, b + 1)))


def _cases_of(code: int) -> Ranges:
    """All characters that Python takes for this one when it ignores case."""
    _, same = cases(0)
    return union(*(((other, other),) for other in same.get(code, (code,))))


@cache
def cases(ascii_flag: int) -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """Code points that have a case, ascending, and those that `re` takes each of them for under (?i)."""
    spelled: dict[int, list[int]] = defaultdict(list)  # lower case -> its spellings
    for code in range(0x80 if ascii_flag else LAST_LETTER + 1):
        lower = unicode_tolower(code)
        if lower != code or lower in _EXTRA_CASES:
            spelled[lower].append(code)
    for lower, codes in spelled.items():
        if lower not in codes:
            codes.append(lower)
    same = {}
    for lower, codes in spelled.items():
        others = () if ascii_flag else _EXTRA_CASES.get(lower, ())
        every = tuple(code for kind in (lower, *others) for code in spelled.get(kind, (kind,)))
        same.update(dict.fromkeys(codes, every))
    return sorted(same), same
