"""Where stop strings and patterns are matched in the text of one output, each by a search of its own (search.py).

Decides where an output stops: at the match that ends first, and among those at the one that starts first; the same rule
for strings and patterns, whatever pieces the text comes in. Knows no tokens. The scheduler uses it to stop, the
detokenizer to hold back what may still be cut: both feed it the same text.
"""

from copy import copy
from typing import NamedTuple, Self

from ramet.runtime.text.search import PatternSearch, StringSearch


class StopMatch(NamedTuple):
    """`pattern` is the stop string or the pattern; [start, end) are characters of all the text fed."""

    pattern: str
    start: int
    end: int


class StopMatcher:
    """Feed it the output. After a match it is finished: it says the same match again and holds all from its start.

    `held`: trailing characters that are, or may still become, part of a match, and so must not be shown yet.
    """

    __slots__ = ("_fed", "_match", "_searches", "held")

    def __init__(self, stop: tuple[str, ...] = (), stop_regex: tuple[str, ...] = ()) -> None:
        self._searches: list[tuple[str, StringSearch | PatternSearch]] = [
            *((string, StringSearch(string)) for string in stop),
            *((pattern, PatternSearch(pattern)) for pattern in stop_regex),
        ]
        self._fed = 0
        self._match: StopMatch | None = None
        self.held = 0

    def feed(self, text: str) -> StopMatch | None:
        self._fed += len(text)
        if self._match is None:
            self._match = self._search(text)
        if self._match is not None:
            self.held = self._fed - self._match.start
        return self._match

    def fork(self) -> Self:
        """A matcher that has read the same text."""
        other = copy(self)
        other._searches = [(name, search.fork()) for name, search in self._searches]
        return other

    def _search(self, text: str) -> StopMatch | None:
        best: StopMatch | None = None
        held = 0
        for name, search in self._searches:
            span = search.feed(text)
            if span is not None and (best is None or (span[1], span[0]) < (best.end, best.start)):
                best = StopMatch(name, *span)
            if search.held > held:
                held = search.held
        self.held = held
        return best
