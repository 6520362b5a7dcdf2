"""A Python literal in the text of an output, and its JSON.

Decides where the value of a keyword argument ends, and what its JSON is. Runs nothing: ast.literal_eval reads it, where
it is small and flat enough that reading cannot take long; anything else becomes its source as a JSON string.
"""

import ast
import json
import re
import warnings

from ramet.runtime.intake.parsers.pieces import Broken, Pieces, Steps

MAX_CODE = 1 << 14  # characters outside strings: they become objects, those of a string do not
MAX_NESTED = 50  # brackets inside each other

_PAIRS = {"(": ")", "[": "]", "{": "}"}
_SPACE = re.compile(r"\s*")
_CODE = re.compile(r"[^\"'()\[\]{},]*")
_IN_STRING = {quote: re.compile(rf"(?:[^{quote}\\]+|\\.)*", re.DOTALL) for quote in "\"'"}
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Literal:
    """Read it, then ask for its JSON."""

    def __init__(self) -> None:
        self._num_code = self._deepest = 0

    def read(self, text: Pieces) -> Steps[None]:
        """Up to the comma or the bracket that is not its own."""
        closers: list[str] = []  # of the open brackets
        begin = text.place
        if (yield from text.run(_SPACE)) in ",)":
            raise Broken
        while True:
            char = yield from text.run(_CODE)
            if not closers and char in ",)":
                break
            if char in "\"'":
                inside = text.place
                yield from _string(text)
                begin += text.place - inside
                continue
            if char in _PAIRS:
                closers.append(_PAIRS[char])
                self._deepest = max(self._deepest, len(closers))
            elif char != "," and (not closers or char != closers.pop()):
                raise Broken
            text.at += 1
        self._num_code = text.place - begin

    def json(self, source: str) -> str:
        """Of a literal; of anything else, and of a literal without JSON (a set, bytes, infinity), its source."""
        if self._num_code > MAX_CODE or self._deepest > MAX_NESTED:
            return as_json(source)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about escapes such as \d, which stay what they are
                return as_json(ast.literal_eval(source))
        except (ValueError, SyntaxError, TypeError, OverflowError, MemoryError, RecursionError):
            return as_json(source)


def _string(text: Pieces) -> Steps[None]:
    """From the quote that opens it, which may be three, to the one or three that end it."""
    quote = yield from text.one_of("\"'")
    quotes = 1
    if (yield from text.peek()) == quote:
        text.at += 1
        if (yield from text.peek()) != quote:
            return
        text.at += 1
        quotes = 3
    run = 0  # quotes in a row
    while run < quotes:
        begin = text.place
        char = yield from text.run(_IN_STRING[quote])
        run = (run if text.place == begin else 0) + 1 if char == quote else 0
        text.at += 1
        if char == "\\":
            yield from text.peek()
            text.at += 1


def as_json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return json.dumps(value) if _SURROGATE.search(text) else text
