"""Markers in text that arrives in pieces: what is certain, and what may yet be the beginning of one.

Decides how much is held back: the beginning of a marker, and white space that a marker after it would swallow. Knows no
format. Every answer depends on the characters alone, never on where a piece ended.
"""

import re

BLANKS = " \t\r\n"
MAX_BLANKS = 256  # of a run of white space that wait for a marker: the ones before them are text

_BLANK_RUN = re.compile(r"[ \t\r\n]*")


def after_blanks(text: str, at: int) -> int:
    """The first place from `at` on that is no white space."""
    found = _BLANK_RUN.match(text, at)
    assert found is not None  # it matches nothing as well
    return found.end()


def before_blanks(text: str, start: int, end: int) -> int:
    """Where the white space begins that ends at `end`: not before `start`, and MAX_BLANKS of it at most."""
    lowest = max(start, end - MAX_BLANKS)
    while end > lowest and text[end - 1] in BLANKS:
        end -= 1
    return end


def may_begin(text: str, at: int, marker: str) -> bool:
    """All that is known from `at` on is the beginning of the marker, and not the whole of it."""
    return len(text) - at < len(marker) and marker.startswith(text[at:])


def certain_until(text: str, at: int, marker: str) -> int:
    """For text without the marker from `at` on: [at, here) is text whatever follows."""
    begin = max(at, len(text) - len(marker) + 1)
    while begin < len(text) and not may_begin(text, begin, marker):
        begin += 1
    return before_blanks(text, at, begin)
