"""JSON that arrives in pieces, read character by character.

Decides which characters may still follow, and where a value ends. Knows no calls. Whether a character is taken depends
only on those before it, so that pieces make no difference, and nothing is held back: a stack of brackets and one
expectation is all that is kept. Strict JSON (RFC 8259), at most MAX_DEPTH deep.
"""

import json
import re
from collections.abc import Callable

from ramet.runtime.intake.parsers.markers import BLANKS

MAX_DEPTH = 100
MAX_DIGITS = 1000  # characters of one number
NO_END = 1 << 62

_IN_STRING = re.compile(r'[^"\\\x00-\x1f]*')
_CLOSERS = {"{": "}", "[": "]"}
_LITERALS = {"t": "rue", "f": "alse", "n": "ull"}
_HEX = frozenset("0123456789abcdefABCDEF")

_DIGITS = "0123456789"
_NUMBER = {  # part of a number -> (characters that may follow, the part they begin or continue)
    "-": (("0", "0"), ("123456789", "1")),
    "0": ((".", "."), ("eE", "e")),
    "1": ((_DIGITS, "1"), (".", "."), ("eE", "e")),
    ".": ((_DIGITS, "fraction"),),
    "fraction": ((_DIGITS, "fraction"), ("eE", "e")),
    "e": (("+-", "sign"), (_DIGITS, "exponent")),
    "sign": ((_DIGITS, "exponent"),),
    "exponent": ((_DIGITS, "exponent"),),
}
_NUMBER_STEPS = {(part, char): after for part, follows in _NUMBER.items() for chars, after in follows for char in chars}
_NUMBER_ENDS = frozenset(("0", "1", "fraction", "exponent"))


class JsonValue:
    """One value that begins with one of `starts` and has at most `room` characters. Ends `done` or `broken`."""

    __slots__ = ("_closers", "_expect", "_num_digits", "_part", "_rest", "_room", "_starts", "broken", "done")

    def __init__(self, starts: str = '{["-0123456789tfn', room: int = NO_END) -> None:
        self._starts, self._room = starts, room
        self._closers: list[str] = []  # of the open brackets
        self._expect: Callable[[JsonValue, str], bool] = JsonValue._start
        self._rest = ""  # of a literal, or of \uXXXX: one character for each that must follow
        self._part = ""  # of a number
        self._num_digits = 0
        self.done = self.broken = False

    def feed(self, text: str, at: int) -> int:
        """Reads on; returns the end of the text, the end of the value, or the first character that cannot be."""
        begin, end = at, min(len(text), at + self._room)
        while at < end and not self.done:
            if self._expect is JsonValue._string:
                found = _IN_STRING.match(text, at, end)
                assert found is not None
                at = found.end()
                if at == end:
                    break
            if not self._expect(self, text[at]):
                self.broken = not self.done
                break
            at += 1
        self._room -= at - begin
        if self._room == 0 and not self.done:
            self.broken = True
        return at

    # Each expectation takes a character or refuses it.

    def _start(self, char: str) -> bool:
        return char in self._starts and self._value(char)

    def _value(self, char: str) -> bool:
        if char in BLANKS:
            return True
        if char == '"':
            self._expect = JsonValue._string
        elif char in _CLOSERS:
            self._closers.append(_CLOSERS[char])
            self._expect = JsonValue._first_key if char == "{" else JsonValue._first_item
            return len(self._closers) <= MAX_DEPTH
        elif char in _LITERALS:
            self._rest = _LITERALS[char]
            self._expect = JsonValue._literal
        elif char in "-0123456789":
            self._part = char if char in "-0" else "1"
            self._num_digits = 1
            self._expect = JsonValue._number
        else:
            return False
        return True

    def _first_item(self, char: str) -> bool:
        return self._close(char) if char == "]" else self._value(char)

    def _first_key(self, char: str) -> bool:
        return self._close(char) if char == "}" else self._key(char)

    def _key(self, char: str) -> bool:
        if char == '"':
            self._closers.append(":")  # the string that ends now is a key
            self._expect = JsonValue._string
            return True
        return char in BLANKS

    def _colon(self, char: str) -> bool:
        if char == ":":
            self._closers.pop()
            self._expect = JsonValue._value
            return True
        return char in BLANKS

    def _after(self, char: str) -> bool:
        if char == ",":
            self._expect = JsonValue._key if self._closers[-1] == "}" else JsonValue._value
            return True
        return char in BLANKS or self._close(char)

    def _close(self, char: str) -> bool:
        if char != self._closers[-1]:
            return False
        self._closers.pop()
        self._end()
        return True

    def _end(self) -> None:
        """A value or a key has ended."""
        if not self._closers:
            self.done = True
        else:
            self._expect = JsonValue._colon if self._closers[-1] == ":" else JsonValue._after

    def _string(self, char: str) -> bool:
        if char == '"':
            self._end()
            return True
        self._expect = JsonValue._escape
        return char == "\\"

    def _escape(self, char: str) -> bool:
        self._rest = "xxxx"
        self._expect = JsonValue._hex if char == "u" else JsonValue._string
        return char in '"\\/bfnrtu'

    def _hex(self, char: str) -> bool:
        self._rest = self._rest[1:]
        if not self._rest:
            self._expect = JsonValue._string
        return char in _HEX

    def _literal(self, char: str) -> bool:
        taken, self._rest = self._rest[0] == char, self._rest[1:]
        if not self._rest:
            self._end()
        return taken

    def _number(self, char: str) -> bool:
        after = _NUMBER_STEPS.get((self._part, char))
        if after is not None:
            self._part = after
            self._num_digits += 1
            return self._num_digits <= MAX_DIGITS
        if self._part not in _NUMBER_ENDS:
            return False
        self._end()
        return not self.done and self._expect(self, char)


_ESCAPED = r"\\[^u]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}"
_HIGH = r"\\u[dD][89abAB][0-9a-fA-F]{2}"
_NO_LOW = r"(?=[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F])"
_WHOLE = re.compile(rf"(?:[^\\]+|{_ESCAPED}|{_HIGH}\\u[dD][c-fC-F][0-9a-fA-F]{{2}}|{_HIGH}{_NO_LOW})*")


class StringDecoder:
    """The inside of a valid JSON string, in pieces: its text. Half of a surrogate pair alone becomes U+FFFD."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""  # the beginning of an escape or of a pair: shorter than 12

    def push(self, raw: str) -> str:
        raw = self._held + raw
        found = _WHOLE.match(raw)
        assert found is not None
        self._held = raw[found.end() :]
        return decoded(raw[: found.end()])

    def close(self) -> str:
        return decoded(self._held)


def decoded(raw: str) -> str:
    """The text of the inside of a whole JSON string."""
    text: str = json.loads(f'"{raw}"')
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
