"""Text that arrives in pieces, and how a generator reads it: it yields where it needs more.

Decides how much of plain text is held back: the beginning of a marker, and white space that a marker after it would
swallow. Knows no format. What is read depends on the characters alone, never on where a piece ended.
"""

import re
from collections.abc import Callable, Generator
from typing import TypeVar

BLANKS = " \t\r\n"
MAX_BLANKS = 256  # of a run of white space that wait for a marker: the ones before them are text
MAX_HELD = 1 << 20  # characters of what may yet be no call: arguments may come before its name
NO_LIMIT = 1 << 62

_NOTHING = re.compile("")
_BLANK_RUN = re.compile(r"[ \t\r\n]*")

T = TypeVar("T")
Steps = Generator[None, None, T]  # yields where it needs more text; returns what it read


class Broken(Exception):
    """The next character cannot stand where it does, or too many came."""


class CallPieces:
    """[0, at) of `text` was read, [at, end) may be. Add a piece, then let the generator go on."""

    def __init__(self) -> None:
        self.text, self.at, self.end = "", 0, 0
        # A marker's first character, where text without it passes and none is pending; else "", which every text has.
        self.awaited = ""
        self._limit = NO_LIMIT  # of `place`
        self._num_before = 0  # characters that came before `text`
        self._held: list[str] | None = None
        self._held_from = 0
        self._repairs: list[tuple[int, int, str]] = []  # where in `text` what `passing` says differs from it, and how

    @property
    def place(self) -> int:
        """In the whole text."""
        return self._num_before + self.at

    def add(self, piece: str) -> None:
        if self._held is not None:
            self._held.append(self.text[self._held_from : self.at])
        self._num_before += self.at
        self.text = self.text[self.at :] + piece
        self.at = self._held_from = 0
        self._repairs.clear()
        self._bound(self._limit)

    def hold(self) -> None:
        """What is read from here on may be given back: at most MAX_HELD characters."""
        self._held, self._held_from = [], self.at
        self._bound(self.place + MAX_HELD)

    def release(self) -> str:
        """What was held. Nothing is from here on."""
        held = "" if self._held is None else "".join(self._held) + self.text[self._held_from : self.at]
        self._held = None
        self._bound(NO_LIMIT)
        return held

    def rest(self) -> str:
        """What was not read."""
        return self.text[self.at :]

    def one_of(self, chars: str) -> Steps[str]:
        char = self.text[self.at] if self.at < self.end else (yield from self.peek())
        if char not in chars:
            raise Broken
        self.at += 1
        return char

    def run(self, pattern: re.Pattern[str]) -> Steps[str]:
        """Reads characters of a kind, any number of them; returns the next one. Raises Broken where none may follow."""
        while True:
            found = pattern.match(self.text, self.at, self.end)
            assert found is not None  # it matches nothing as well
            self.at = found.end()
            if self.at < self.end:
                return self.text[self.at]
            self.may_wait()
            yield

    def may_wait(self, ahead: int = 0) -> None:
        """Raises Broken where no more may be read. `ahead`: how much was looked at beyond what was read."""
        if self._num_before + self.at + ahead >= self._limit:
            raise Broken

    def repair(self, num_read: int, instead: str) -> None:
        """Reads so many characters, in whose place `passing` says something else. What is held stays what it was."""
        self._repairs.append((self.at, self.at + num_read, instead))
        self.at += num_read

    def peek(self) -> Steps[str]:
        return self.run(_NOTHING)

    def skip_blanks(self) -> Steps[str]:
        return self.run(_BLANK_RUN)

    def passing(self, steps: Steps[object], say: Callable[[str], None]) -> Steps[None]:
        """Says what is read by these steps as it comes, repaired."""
        begin = self.at
        self._repairs.clear()
        try:
            for _ in steps:
                say(self._repaired(begin))
                yield
                begin = self.at
        except Broken:
            say(self._repaired(begin))
            raise
        say(self._repaired(begin))

    def word(self, steps: Steps[object], most: int) -> Steps[str]:
        """What is read by these steps: at most so many characters, with the one that ends it."""
        pieces: list[str] = []
        limit = self._limit
        self._bound(min(limit, self.place + most))
        yield from self.passing(steps, pieces.append)
        self._bound(limit)
        return "".join(pieces)

    def begins(self, *markers: str) -> Steps[bool]:
        """Whether one of these comes next, after MAX_BLANKS at most. Nothing is read."""
        most = max(map(len, markers), default=0)
        num_blanks = 0  # that come next, as far as is known
        while True:
            blanks = _BLANK_RUN.match(self.text, self.at + num_blanks)
            assert blanks is not None  # it matches nothing as well
            num_blanks = blanks.end() - self.at
            if num_blanks > MAX_BLANKS:
                return False
            known = self.text[blanks.end() : blanks.end() + most]
            if known.startswith(markers):
                return True
            if not any(marker.startswith(known) for marker in markers):
                return False
            yield

    def passes(self, marker: str) -> Steps[bool]:
        """Reads white space, and the marker where it comes next."""
        yield from self.skip_blanks()
        found = yield from self.begins(marker)
        self.at += len(marker) if found else 0
        return found

    def until(self, marker: str, say: Callable[[str], None]) -> Steps[None]:
        """Says all that comes before the marker and the white space in front of it, which are not read.

        The marker begins with no white space.
        """
        num_blanks = 0  # that wait: a piece that comes after them is all that is looked at
        while True:
            known = self.at + num_blanks
            found = self.text.find(marker, known)
            end = found if found >= 0 else self._begin_of(marker, known)
            begin = self._before_blanks(known, end)
            say(self.text[self.at : begin])
            self.at, num_blanks = begin, end - begin
            if found >= 0:
                return
            self.awaited = marker[0] if begin == len(self.text) else ""
            yield
            self.awaited = ""

    def _repaired(self, begin: int) -> str:
        """What was read from there on."""
        parts = list[str]()
        for start, end, instead in self._repairs:
            parts += [self.text[begin:start], instead]
            begin = end
        self._repairs.clear()
        return "".join([*parts, self.text[begin : self.at]])

    def _bound(self, limit: int) -> None:
        self._limit = limit
        most, self.end = limit - self._num_before, len(self.text)
        if most < self.end:
            self.end = most

    def _before_blanks(self, known: int, end: int) -> int:
        """Where the white space begins that ends at `end`: MAX_BLANKS of it at most. [at, known) is white space."""
        first = max(self.at, end - MAX_BLANKS)
        new = self.text[max(first, known) : end]
        num_blanks = len(new) - len(new.rstrip(BLANKS))
        return end - num_blanks if num_blanks < len(new) else first

    def _begin_of(self, marker: str, start: int) -> int:
        """Where the end of the text, from `start` on, may be the marker's beginning."""
        begin = max(start, len(self.text) - len(marker) + 1)
        while not marker.startswith(self.text[begin:]):
            begin += 1
        return begin
