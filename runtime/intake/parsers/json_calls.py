"""Calls as JSON objects one after the other, or as a JSON list of them.

Decides what may stand between two calls: white space, and one of `separators`. Knows no markers. A separator that no
call follows is content.
"""

from typing import ClassVar

from ramet.runtime.intake.parsers.json_call import JsonCall
from ramet.runtime.intake.parsers.marked import MarkedParser
from ramet.runtime.intake.parsers.markers import after_blanks


class JsonCallsParser(MarkedParser):
    """A format says where calls begin (`_begin_calls`), which names it takes, and what may separate them."""

    separators: ClassVar[str] = ","

    def __init__(self, tools: frozenset[str]) -> None:
        super().__init__(tools)
        self._call = JsonCall(self._accepts)
        self._listed = False

    def _accepts(self, name: str) -> bool:
        return True  # the marker says that it is a call

    def _begin_calls(self, text: str, at: int) -> int:
        """`at` is the first character that is no white space: the list's or the call's."""
        self._listed = text[at] == "["
        self._begin_call()
        if self._listed:
            self._raw.append("[")
        return at + self._listed

    def _begin_call(self) -> None:
        self._call = JsonCall(self._accepts)
        self._state = self._in_call

    def _in_call(self, text: str, at: int) -> int:
        end = self._call.feed(text, at)
        self._raw.append(text[at:end])
        if self._call.started:
            self._raw.clear()
            self._events += self._call.take()
        if self._call.broken:
            self._give_back()
        elif self._call.done:
            self._state = self._between
        return end

    def _between(self, text: str, at: int) -> int:
        at = after_blanks(text, at)
        if at == len(text):
            return at
        if text[at] in self.separators:
            self._raw.append(text[at])
            self._begin_call()
            return at + 1
        if text[at] == "{":
            self._begin_call()
        elif text[at] == "]" and self._listed:
            self._state = self._after
            return at + 1
        else:
            self._state = self._plain
        return at
