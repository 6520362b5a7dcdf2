"""What the formats of tool calls share: plain text up to a marker, calls, and plain text again."""

import re
from abc import abstractmethod
from typing import ClassVar

from ramet.runtime.intake.parsers.json_text import value
from ramet.runtime.intake.parsers.pieces import BLANKS, Broken, CallPieces, Steps
from ramet.runtime.intake.parsers.structure import Part, among_text, either, matching, row
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart, Event, ToolParser

MAX_HEAD = 256  # characters in front of the brace that opens the arguments


class MarkedParser(ToolParser):
    """Content until `opens`, then calls, then white space and at most one `closes`, then content again."""

    opens: ClassVar[str]
    closes: ClassVar[str] = ""
    starts: ClassVar[tuple[str, ...]] = ()  # with these, calls begin at the very start of the output, without a marker

    def __init__(self, tools: frozenset[str]) -> None:
        super().__init__(tools)
        self._text = CallPieces()
        self._bare = False  # calls without a marker are read
        self._events: list[Event] = []
        self._steps = self._read()

    @classmethod
    def _bare_or_marked(cls, bare: Part, marked: list[Part]) -> Part:
        """Calls without a marker, or text that does not begin as they do, which ends with one of the marked ones."""
        others = "".join("\\" + char for char in "".join(cls.starts))
        text = row(matching(rf"[ \t\r\n]*[^ \t\r\n{others}]"), among_text(cls.opens, marked, single=True))
        return either([bare, *marked, text])

    def push(self, text: str) -> list[Event]:
        if self._text.awaited not in text and text[-1:] not in BLANKS:
            return [text]
        self._text.add(text)
        next(self._steps)
        return self._take()

    def close(self) -> list[Event]:
        self._say(self._text.release() + self._text.rest())
        self._steps.close()  # they know this object: without the circle it is freed with its output
        return self._take()

    def _read(self) -> Steps[None]:
        text = self._text
        self._bare = yield from text.begins(*self.starts)
        may_call = self._bare or not self.leading or (yield from text.begins(self.opens))
        while may_call:
            if not self._bare:
                yield from text.until(self.opens, self._say)
            text.hold()
            try:
                yield from text.passes("" if self._bare else self.opens)
                yield from self._calls()
                yield from text.passes(self.closes)
                yield from text.skip_blanks()
            except Broken:
                may_call = not self.leading
                self._say(text.release())
            self._bare = False
        while True:
            self._say(text.rest())
            text.at = len(text.text)
            yield

    @abstractmethod
    def _calls(self) -> Steps[None]:
        """What stands between the markers. It is held until a call begins; what Broken leaves held is content."""

    def _head(self, pattern: re.Pattern[str]) -> Steps[tuple[re.Match[str] | None, int]]:
        """What stands before the brace that opens the arguments, if it is a head of this pattern; where it ends."""
        text = self._text
        without = 0  # characters that are known to be no brace
        while True:
            brace = text.text.find("{", text.at + without, text.at + MAX_HEAD)
            if brace >= 0:
                return pattern.fullmatch(text.text, text.at, brace), brace
            without = len(text.text) - text.at
            if without >= MAX_HEAD:
                return None, text.at + MAX_HEAD
            yield

    def _object_call(self, name: str) -> Steps[None]:
        """A call whose arguments come next, an object by itself."""
        self._begin_call(name)
        return self._text.passing(value(self._text), self._say_arguments)

    def _begin_call(self, name: str) -> None:
        self._text.release()
        self._events.append(CallStart(name))

    def _say(self, content: str) -> None:
        if content:
            self._events.append(content)

    def _say_arguments(self, fragment: str) -> None:
        if fragment:
            self._events.append(CallArguments(fragment))

    def _take(self) -> list[Event]:
        events, self._events = self._events, []
        return events
