r"""Anchors of stop patterns: which places of a text ^ $ \A \Z \b \B match. What they mean is Python's `re`.

A place is between two characters. Two sets of sides describe it, that of what is before it and that of what is after.
"""

import re
from collections.abc import Iterable
from enum import Enum
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

# Sides, as bits: what a place has on one side of it.
EDGE = 1  # the start or the end of the text
NEWLINE = 2
LAST_NEWLINE = 4  # a newline that is the last character of the text, which $ matches in front of
WORD = 8
ASCII_WORD = 16
NEIGHBOURS = (0, NEWLINE, NEWLINE | LAST_NEWLINE, WORD, WORD | ASCII_WORD)  # every set of sides that a character gives

# What a search reads where the text so far ends, beside its characters.
END = ""
FINAL_NEWLINE = "\n$"  # the newline that ends it

_WORD = re.compile(r"\w")
_ASCII_WORD = re.compile(r"\w", re.ASCII)


class Look(Enum):
    BEHIND = "what is before the place is one of `sides`"
    AHEAD = "what is after it is"
    BOUNDARY = "one of both is, and the other is not"
    NO_BOUNDARY = "both are, or none of them"


class Anchor(NamedTuple):
    look: Look
    sides: int

    def matches(self, before: int, after: int | None) -> bool | None:
        """`after`: None where it is not known yet; the answer is None where it depends on that."""
        if self.look is Look.BEHIND:
            return bool(before & self.sides)
        if after is None:
            return None
        if self.look is Look.AHEAD:
            return bool(after & self.sides)
        return (bool(before & self.sides) != bool(after & self.sides)) == (self.look is Look.BOUNDARY)


def anchor_of(position: Any, flags: int) -> Anchor:
    """The anchor that the standard library's syntax tree calls `position`, under these flags of `re`."""
    line = NEWLINE if flags & re.MULTILINE else 0
    match str(position):
        case "AT_BEGINNING":
            return Anchor(Look.BEHIND, EDGE | line)
        case "AT_BEGINNING_STRING":
            return Anchor(Look.BEHIND, EDGE)
        case "AT_END":
            return Anchor(Look.AHEAD, EDGE | LAST_NEWLINE | line)
        case "AT_END_STRING":
            return Anchor(Look.AHEAD, EDGE)
    look = {"AT_BOUNDARY": Look.BOUNDARY, "AT_NON_BOUNDARY": Look.NO_BOUNDARY}[str(position)]
    return Anchor(look, ASCII_WORD if flags & re.ASCII else WORD)


def sides_read(anchors: Iterable[Anchor], ahead: bool) -> int:
    """All sides that these anchors ask for: of what is after a place, or of what is before it."""
    other = Look.BEHIND if ahead else Look.AHEAD
    return reduce(or_, (anchor.sides for anchor in anchors if anchor.look is not other), 0)


def sides_of(symbol: str) -> int:
    """Of a place beside this character, or in front of one of the symbols."""
    if symbol == "\n":
        return NEWLINE
    if symbol == FINAL_NEWLINE:
        return NEWLINE | LAST_NEWLINE
    if symbol == END:
        return EDGE
    if _ASCII_WORD.match(symbol):
        return WORD | ASCII_WORD
    return WORD if _WORD.match(symbol) else 0
