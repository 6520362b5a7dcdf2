"""Where an output ends: services differ in the stop texts that they take, so the text is cut here in any case."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ramet.frontend.backends.base import OnText


def first_stop(text: str, stops: Iterable[str]) -> tuple[int, str] | None:
    """Where the first stop text begins, and which it is; the one that is complete first ends an output."""
    found = [(text.find(stop) + len(stop), text.find(stop), stop) for stop in stops if stop in text]
    return min(found)[1:] if found else None


def first_match(text: str, patterns: Iterable[str]) -> tuple[int, int, str] | None:
    """Where the first match begins and ends, and of which pattern: the one that is complete first, as it would be if
    the text came character by character. Raises re.error.
    """
    compiled = [(re.compile(pattern), pattern) for pattern in patterns]
    for end in range(1, len(text) + 1) if compiled else ():
        found = [(match.start(), end, pattern) for each, pattern in compiled if (match := each.search(text, 0, end))]
        if found:
            return min(found)
    return None


def without_begun_stop(text: str, meta: Mapping[str, Any], stops: Iterable[str]) -> str:
    """Of a stream that gives the beginning of a stop text before it knows that it is one, and then no more of it."""
    matched = (meta.get("finish_reason") or {}).get("matched")
    found = [stop for stop in stops if stop == matched]
    return text[: len(text) - _num_begun(text, found)]


def _num_begun(text: str, stops: Iterable[str]) -> int:
    """Characters at the end that a stop text may begin with."""
    stops = list(stops)
    most = max((len(stop) - 1 for stop in stops), default=0)
    for num in range(min(most, len(text)), 0, -1):
        if any(len(stop) > num and text.endswith(stop[:num]) for stop in stops):
            return num
    return 0


class UntilStop:
    """A text as it comes, up to the first stop text. `on_text` gets what is certain not to be part of one."""

    def __init__(self, stops: Iterable[str], on_text: OnText | None = None) -> None:
        self.matched = ""
        self._stops, self._on_text = tuple(stops), on_text
        self._passed, self._num_passed = list[str](), 0
        self._held = ""  # the text's end, with which a stop text may begin

    @property
    def text(self) -> str:
        return "".join(self._passed) + self._held

    def add(self, piece: str) -> None:
        if self.matched:
            return
        rest = self._held + piece  # a stop text begins in it, or is complete already
        found = first_stop(rest, self._stops)
        if found is not None:
            rest, self.matched = rest[: found[0]], found[1]
        num = len(rest) if found is not None else len(rest) - _num_begun(rest, self._stops)
        self._held = rest[num:]
        self._pass(rest[:num])

    def end(self, most: int | None = None) -> None:
        """`most`: characters of the output, which may end before the text does; None: it does not."""
        rest = self._held if most is None else self._held[: max(0, most - self._num_passed)]
        self._held = ""
        self._pass(rest)

    def _pass(self, text: str) -> None:
        if text:
            self._passed.append(text)
            self._num_passed += len(text)
            if self._on_text is not None:
                self._on_text(text)
