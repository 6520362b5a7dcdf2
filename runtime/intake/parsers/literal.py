"""A Python literal in the text of an output, and its JSON.

Decides where the value of a keyword argument ends, and what its JSON is. Runs nothing: ast.literal_eval reads it, where
it is small and flat enough that reading cannot take long; anything else becomes its source as a JSON string.
"""

import ast
import json
import re
import warnings

MAX_VALUE = 1 << 20  # characters of one value
MAX_CODE = 1 << 14  # of them outside strings: they become objects, characters of a string do not
MAX_NESTED = 50  # brackets inside each other

_PAIRS = {"(": ")", "[": "]", "{": "}"}
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class LiteralScan:
    """Feed it a value; it ends at the comma or the bracket that is not its own: `done`. `broken`: no value."""

    __slots__ = (
        "_blank", "_closers", "_deepest", "_empty", "_escaped", "_fresh", "_num_code", "_parts", "_quote", "_run",
        "_size", "broken", "done",
    )  # fmt: skip

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = self._num_code = self._deepest = 0
        self._closers: list[str] = []  # of the open brackets
        self._quote = ""  # that opened the string: one or three
        self._run = 0  # quotes in a row that may close it
        self._escaped = self._fresh = False  # after a backslash; after the quote that opened a short string
        self._empty = ""  # the quote of an empty string that has just ended: one more opens a long one
        self._blank = True  # nothing but white space came
        self.done = self.broken = False

    def feed(self, text: str, at: int) -> int:
        """Reads on; returns the end of the text, the end of the value, or the first character that cannot be."""
        begin, end = at, min(len(text), at + MAX_VALUE - self._size)
        while at < end and self._take(text[at]):
            at += 1
        self._parts.append(text[begin:at])
        self._size += at - begin
        if self._size == MAX_VALUE and not self.done:
            self.broken = True
        return at

    def json(self) -> str:
        source = "".join(self._parts).strip()
        if self._num_code > MAX_CODE or self._deepest > MAX_NESTED:
            return as_json(source)
        return literal_json(source)

    def _take(self, char: str) -> bool:
        if self._quote:
            self._in_string(char)
            return True
        self._num_code += 1
        empty, self._empty = self._empty, ""
        if char == empty:
            self._quote = char * 3
        elif char in "\"'":
            self._quote, self._fresh = char, True
        elif char in _PAIRS:
            self._closers.append(_PAIRS[char])
            self._deepest = max(self._deepest, len(self._closers))
        elif self._closers and char == self._closers[-1]:
            self._closers.pop()
        elif not self._closers and char in ",)":
            self.done = not self._blank
            self.broken = self._blank
            return False
        elif char in ")]}":
            self.broken = True
            return False
        self._blank = self._blank and char.isspace()
        return True

    def _in_string(self, char: str) -> None:
        fresh, self._fresh = self._fresh, False
        if self._escaped or char != self._quote[0]:
            self._run = 0
            self._escaped = char == "\\" and not self._escaped
            return
        self._run += 1
        if self._run == len(self._quote):
            self._empty = char if fresh else ""
            self._quote, self._run = "", 0


def literal_json(source: str) -> str:
    """The JSON of a literal; of anything else, and of a literal without JSON (a set, bytes, infinity), its source."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes such as \d, which stay what they are
            return as_json(ast.literal_eval(source))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return as_json(source)


def as_json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return json.dumps(value) if _SURROGATE.search(text) else text
