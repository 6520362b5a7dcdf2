"""Calls between <｜tool▁calls▁begin｜> and <｜tool▁calls▁end｜>, each in markers of its own: DeepSeek V3, R1, V3.1.

Decides where the name of a call is: after the separator, the arguments in a code fence (V3, R1), or before it, the
arguments right behind (V3.1). Any name is taken: the markers are special tokens. Where one that closes is missing, or
the fence does not end, the call stands. The marker in front of the calls may not be missing.
"""

import re

from ramet.runtime.intake.parsers.marked import MarkedParser, State
from ramet.runtime.intake.parsers.markers import after_blanks, may_begin
from ramet.runtime.intake.parsers.tools import tool_parser

CALL_OPENS = "<｜tool▁call▁begin｜>"
CALL_CLOSES = "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"
FENCE = "```"
MAX_HEAD = 256  # characters of a call before its arguments

_BLANK = r"[ \t\r\n]*"
_NAME = r"[^\s{}`<]+"
_HEAD = re.compile(
    rf"{_BLANK}{CALL_OPENS}{_BLANK}(?P<first>{_NAME}){_BLANK}{SEPARATOR}"
    rf"{_BLANK}(?P<second>{_NAME})?{_BLANK}(?P<fence>{FENCE}(?:json)?{_BLANK})?"
)


@tool_parser("deepseek", "deepseek-v3")
class DeepseekParser(MarkedParser):
    opens = "<｜tool▁calls▁begin｜>"
    closes = "<｜tool▁calls▁end｜>"
    shows_special = True

    def _opened(self, text: str, at: int) -> int:
        """From the marker of one call to the brace that opens its arguments: read in one go, or left as content."""
        brace = text.find("{", at, at + MAX_HEAD)
        if brace < 0 and len(text) - at < MAX_HEAD:
            return at
        head = _HEAD.fullmatch(text, at, brace) if brace >= 0 else None
        if head is None:
            self._give_back()
            return at
        self._begin_arguments(head["second"] or head["first"], self._fenced if head["fence"] else self._ended)
        return brace

    def _fenced(self, text: str, at: int) -> int:
        """After arguments in a fence."""
        return self._pass(text, at, FENCE, self._ended)

    def _ended(self, text: str, at: int) -> int:
        """After the arguments."""
        return self._pass(text, at, CALL_CLOSES, self._between)

    def _between(self, text: str, at: int) -> int:
        """After a call."""
        at = after_blanks(text, at)
        if text.startswith(CALL_OPENS, at):
            self._state = self._opened
        elif not may_begin(text, at, CALL_OPENS):
            self._state = self._after
        return at

    def _pass(self, text: str, at: int, marker: str, then: State) -> int:
        """White space, and the marker where it is there."""
        at = after_blanks(text, at)
        if text.startswith(marker, at):
            self._state = then
            return at + len(marker)
        if not may_begin(text, at, marker):
            self._state = then
        return at
