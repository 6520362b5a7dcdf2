"""One call as a JSON object: {"name": ..., "arguments": {...}}, in pieces.

Decides when the name is known, which characters are the arguments', and what is wrong. Knows no markers. Keys come in
any order and others are skipped; the first name and the first arguments count. Arguments are an object, whose text goes
on as it comes, a string that holds one (what is no JSON in it ends the arguments; the call goes on), or nothing: null,
an empty string, no key at all are "{}". A call that closes without a name, or whose name is not accepted, is broken.
"""

from collections.abc import Callable
from enum import Enum, auto

from ramet.runtime.intake.parsers.json_text import JsonValue, StringDecoder, decoded
from ramet.runtime.intake.parsers.markers import BLANKS, after_blanks
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart, Event

ARGUMENTS = ("arguments", "parameters")
MAX_HEAD = 1 << 20  # characters of a call before its name is known: arguments may come first
MAX_WORD = 256  # characters of a name or a key, with its quotes


class Part(Enum):
    OPEN = auto()  # waits for {
    FIRST_KEY = auto()
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    COMMA = auto()  # waits for , or }


class Role(Enum):
    """What the value that is being read is."""

    KEY = auto()
    NAME = auto()
    ARGUMENTS = auto()
    TEXT = auto()  # arguments inside a string
    OTHER = auto()


class JsonCall:
    """Feed it the text; ends `done` or `broken`. What was fed before `started` may be no call at all."""

    def __init__(self, accepts: Callable[[str], bool]) -> None:
        self._accepts = accepts
        self._part = Part.OPEN
        self._value: JsonValue | None = None
        self._role = Role.OTHER
        self._word: list[str] = []  # of the key or the name
        self._key = ""
        self._text: TextArguments | None = None
        self._early: list[str] = []  # arguments that came before the name
        self._num_head = 0
        self._has_arguments = False
        self._events: list[Event] = []
        self.started = self.done = self.broken = False

    def feed(self, text: str, at: int) -> int:
        """Reads on; returns the end of the text, the end of the call, or the first character that cannot be."""
        begin = at
        end = len(text) if self.started else min(len(text), at + MAX_HEAD - self._num_head)
        while at < end and not self.done and not self.broken:
            at = self._read_value(text, at) if self._value is not None else self._read_part(text, at)
        self._num_head += at - begin
        if not self.started and self._num_head >= MAX_HEAD:
            self.broken = True
        return at

    def take(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _read_part(self, text: str, at: int) -> int:
        at = after_blanks(text, at)
        if at == len(text):
            return at
        match self._part, text[at]:
            case Part.OPEN, "{":
                self._part = Part.FIRST_KEY
            case ((Part.FIRST_KEY | Part.KEY), '"'):
                self._begin(Role.KEY, JsonValue(room=MAX_WORD))
                return at
            case Part.COLON, ":":
                self._part = Part.VALUE
            case Part.VALUE, char:
                self._begin_value(char)
                return at
            case Part.COMMA, ",":
                self._part = Part.KEY
            case ((Part.FIRST_KEY | Part.COMMA), "}") if self.started:
                self.done = True
                if not self._has_arguments:
                    self._say_arguments("{}")
            case _:
                self.broken = True
                return at
        return at + 1

    def _begin(self, role: Role, value: JsonValue) -> None:
        self._role, self._value = role, value
        self._word.clear()

    def _begin_value(self, char: str) -> None:
        if self._key == "name" and not self.started:
            self._begin(Role.NAME, JsonValue('"', MAX_WORD))
        elif self._key in ARGUMENTS and not self._has_arguments:
            role = Role.ARGUMENTS if char == "{" else Role.TEXT if char == '"' else Role.OTHER
            self._begin(role, JsonValue('{"n'))
            self._has_arguments = role is Role.ARGUMENTS
            self._text = TextArguments()
        else:
            self._begin(Role.OTHER, JsonValue())

    def _read_value(self, text: str, at: int) -> int:
        value = self._value
        assert value is not None
        end = value.feed(text, at)
        self._use(text[at:end], value.done)
        if value.done:
            self._value = None
            self._end_value()
        self.broken |= value.broken
        return end

    def _use(self, raw: str, last: bool) -> None:
        match self._role:
            case Role.KEY | Role.NAME:
                self._word.append(raw)
            case Role.ARGUMENTS:
                self._say_arguments(raw)
            case Role.TEXT:
                assert self._text is not None
                self._say_arguments(self._text.push(raw, last))
                self._has_arguments = self._text.begun
            case Role.OTHER:
                pass

    def _end_value(self) -> None:
        self._part = Part.COLON if self._role is Role.KEY else Part.COMMA
        if self._role is Role.KEY:
            self._key = decoded("".join(self._word)[1:-1])
        elif self._role is Role.NAME:
            self._start(decoded("".join(self._word)[1:-1]))

    def _start(self, name: str) -> None:
        if not name or not self._accepts(name):
            self.broken = True
            return
        self.started = True
        self._events.append(CallStart(name))
        self._say_arguments("".join(self._early))

    def _say_arguments(self, text: str) -> None:
        if text and self.started:
            self._events.append(CallArguments(text))
        elif text:
            self._early.append(text)


class TextArguments:
    """An object inside a JSON string. `begun`: the string is not blank."""

    def __init__(self) -> None:
        self._decoder = StringDecoder()
        self._object = JsonValue("{")
        self._num_read = 0
        self.begun = False

    def push(self, raw: str, last: bool) -> str:
        """`raw`: a piece of the string, whose first piece begins with a quote and the last ends with one."""
        inside = raw[0 if self._num_read else 1 : -1 if last else None]
        self._num_read += len(raw)
        text = self._decoder.push(inside) + (self._decoder.close() if last else "")
        if not self.begun:
            text = text.lstrip(BLANKS)
            self.begun = bool(text)
        if self._object.done or self._object.broken:
            return ""
        return text[: self._object.feed(text, 0)]
