"""What the formats of tool calls share: plain text up to a marker, a text read state by state, an object of arguments.

Decides what of plain text may be shown, and how text that is no call after all is given back. Knows no format: a format
names its markers and adds its states. A state is a method (text, at) -> at: it reads on, and may set the next one;
where it does neither, it waits for more, and [at, end) is read again with the next piece. What waits is bounded by a
marker and MAX_BLANKS.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

from ramet.runtime.intake.parsers.json_text import JsonValue
from ramet.runtime.intake.parsers.markers import BLANKS, after_blanks, before_blanks, certain_until, may_begin
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart, Event, ToolParser

State = Callable[[str, int], int]


class MarkedParser(ToolParser):
    """Content until `opens`, then calls, then white space and at most one `closes`, then content again."""

    opens: ClassVar[str]
    closes: ClassVar[str] = ""

    def __init__(self, tools: frozenset[str]) -> None:
        super().__init__(tools)
        self._pending = ""
        self._raw: list[str] = []  # read as part of a call that is not certain: content, if it is none
        self._events: list[Event] = []
        self._state: State = self._plain
        self._calm = True  # in plain text, and nothing is pending
        self._first = self.opens[0]
        self._arguments = JsonValue("{")
        self._then: State = self._after  # where the arguments have ended

    def push(self, text: str) -> list[Event]:
        if self._calm and self._first not in text and text[-1:] not in BLANKS:
            return [text]
        text = self._pending + text
        self._pending = text[self._read(text) :]
        self._calm = not self._pending and self._state == self._plain
        return self._take()

    def close(self) -> list[Event]:
        self._raw.append(self._pending)
        self._pending = ""
        self._give_back()
        return self._take()

    @abstractmethod
    def _opened(self, text: str, at: int) -> int:
        """The state after the marker."""

    def _plain(self, text: str, at: int) -> int:
        found = text.find(self.opens, at)
        end = certain_until(text, at, self.opens) if found < 0 else before_blanks(text, at, found)
        self._say(text[at:end])
        if found < 0:
            return end
        after = found + len(self.opens)
        self._raw.append(text[end:after])
        self._state = self._opened
        return after

    def _begin_arguments(self, name: str, then: State) -> None:
        """A call whose arguments are an object by itself."""
        self._raw.clear()
        self._events.append(CallStart(name))
        self._arguments, self._then = JsonValue("{"), then
        self._state = self._in_arguments

    def _in_arguments(self, text: str, at: int) -> int:
        end = self._arguments.feed(text, at)
        self._say_arguments(text[at:end])
        if self._arguments.broken:
            self._state = self._plain
        elif self._arguments.done:
            self._state = self._then
        return end

    def _after(self, text: str, at: int) -> int:
        """Right after the last call."""
        at = after_blanks(text, at)
        if not self.closes or text.startswith(self.closes, at):
            self._state = self._past
            return at + len(self.closes)
        if not may_begin(text, at, self.closes):
            self._state = self._plain
        return at

    def _past(self, text: str, at: int) -> int:
        """After the marker that closes."""
        at = after_blanks(text, at)
        if at < len(text):
            self._state = self._plain
        return at

    def _read(self, text: str) -> int:
        at = 0
        while at < len(text):
            state = self._state
            end = state(text, at)
            if end == at and state == self._state:
                break
            at = end
        return at

    def _give_back(self) -> None:
        """What was read of the call is content, and so is what follows."""
        self._say("".join(self._raw))
        self._raw.clear()
        self._state = self._plain

    def _say(self, content: str) -> None:
        if content:
            self._events.append(content)

    def _say_arguments(self, fragment: str) -> None:
        if fragment:
            self._events.append(CallArguments(fragment))

    def _take(self) -> list[Event]:
        events, self._events = self._events, []
        return events
