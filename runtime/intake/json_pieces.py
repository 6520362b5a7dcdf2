"""Parses long JSON in pieces, so that no single call of the parser keeps Python's lock for long.

Decides where JSON is cut: about every PIECE bytes, at the next comma outside of strings, however deep it stands. Around
each piece stand brackets for the lists and objects that are open where it begins and where it ends; its value is then
merged into theirs. So what comes out, and what is refused, is as if the parser had read the text at once.
"""

import os
import re
from typing import Any, NoReturn

import orjson

from ramet.runtime.intake.body_items import Bytes, brackets_in
from ramet.runtime.intake.limits import MAX_DEPTH

PIECE = 1 << 16  # bytes; parsed in up to 2 ms
FEW_MARKS = 1 << 12  # commas and brackets up to which a text is parsed at once: long strings take next to no time
SPACE = b" \t\r\n"
BEGIN, END = (f"{name} {os.urandom(8).hex()}" for name in ("begin", "end"))  # no client can guess them

_OPENED = {b"[": b"[", b"{": b'{"%b":' % BEGIN.encode()}  # before the list or object that it contains
_MARKED = {b"[": b',"%b"]' % END.encode(), b"{": b',"%b":0}' % END.encode()}  # behind the newest entry
_CLOSED = {b"[": b"]", b"{": b"}"}
_ENTRY = {b"[": b"0,", b"{": b'"":0,'}
_CLOSES = re.compile(rb"[ \t\r\n]*+[\]}]")
_STRING_END = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_TO_COMMA = re.compile(rb'[^",]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^",]*+)*+,', re.DOTALL)


def loads(data: Bytes, num_marks: int) -> Any:
    """The value of a JSON text. `num_marks`: how many commas and opening brackets it has, or more.

    Raises orjson.JSONDecodeError.
    """
    if len(data) <= 2 * PIECE or num_marks <= FEW_MARKS:
        return orjson.loads(data)
    return _Pieces(data).value()


class _Pieces:
    def __init__(self, data: Bytes) -> None:
        self._data = data
        self._brackets = b""  # those that opened the lists and objects that are open, from the outermost
        self._open: list[Any] = []  # these lists and objects

    def value(self) -> Any:
        start = 0
        while (cut := self._next_cut(start)) is not None:
            self._add(start, *cut)
            start = cut[0] + 1
        before = self._before(start)
        made = self._parsed(before, start, len(self._data), b"")
        if start == 0:
            return made
        self._merge(made)
        return self._open[0]

    def _next_cut(self, start: int) -> tuple[int, bytes] | None:
        """Where the piece from `start` on ends, and which brackets are open there. None: it is the last one."""
        data, stop = self._data, start + PIECE
        piece = data[start:stop]
        stop += (len(piece) - len(piece.rstrip(b"\\"))) % 2  # not within an escape
        if stop >= len(data):
            return None
        if _num_quotes(data[start:stop]) % 2:
            if (end := _STRING_END.match(data, stop)) is None:
                return None
            stop = end.end()
        if (end := _TO_COMMA.match(data, stop)) is None:
            return None
        stop = end.end() - 1
        brackets = _reduced(self._brackets + brackets_in(data[start:stop]))
        return None if brackets is None else (stop, brackets)

    def _before(self, start: int) -> bytes:
        """What is missing before the piece that begins there."""
        if start == 0:
            return b""
        outer, inner = self._brackets[:-1], self._brackets[-1:]
        before = b"".join(_OPENED[bytes([each])] for each in outer) + inner
        if _CLOSES.match(self._data, start) is not None:
            return before + _ENTRY[inner]  # nothing may close behind a comma: the parser raises
        return before

    def _add(self, start: int, stop: int, brackets: bytes) -> None:
        """Parse the piece that a comma ends, where these brackets are open."""
        before = self._before(start)
        if not brackets or self._data[start:stop].rstrip(SPACE)[-1:] in (b"", b"[", b"{"):
            self._parsed(before, start, stop + 1, b"")  # no comma may stand there: the parser raises
        closing = b"".join(_CLOSED[bytes([each])] for each in reversed(brackets[:-1]))
        made = self._parsed(before, start, stop, _MARKED[brackets[-1:]] + closing)
        spine = _spine(made, brackets)
        assert spine is not None, "the end of the piece is marked"
        merged = dict(zip(map(id, self._merge(made)), self._open, strict=True)) if start else {}
        self._open = [merged.get(id(each), each) for each in spine]
        self._brackets = brackets

    def _merge(self, made: Any) -> list[Any]:
        """Merge a piece's value into the lists and objects that were open before it. Returns those that continued them.

        WRITES both.
        """
        continued = [made]
        for bracket in self._brackets[:-1]:
            outer = continued[-1]
            continued.append(outer.pop(0) if bracket == ord("[") else outer.pop(BEGIN))
        for old, new in zip(self._open, continued, strict=True):
            if isinstance(old, list):
                old += new
            else:
                old |= new
        return continued

    def _parsed(self, before: bytes, start: int, stop: int, after: bytes) -> Any:
        try:
            return orjson.loads(before + self._data[start:stop] + after)
        except orjson.JSONDecodeError as error:
            self._refuse(error, start, len(before))

    def _refuse(self, error: orjson.JSONDecodeError, start: int, num_before: int) -> NoReturn:
        """Raise the error of a piece as one of the whole text."""
        try:
            doc, passed = self._data.decode(), len(self._data[:start].decode())
        except UnicodeDecodeError:
            orjson.loads(self._data)  # raises: it looks for this first
            raise
        raise orjson.JSONDecodeError(error.msg, doc, min(len(doc), passed + error.pos - num_before)) from None


def _num_quotes(piece: Bytes) -> int:
    """The quotes that begin or end a string."""
    return (piece.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in piece else piece).count(b'"')


def _reduced(brackets: bytes) -> bytes | None:
    """Brackets without those that are closed. None: they cannot be read, or nest too deep."""
    for _ in range(MAX_DEPTH):
        left = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if left == brackets:
            return brackets if brackets.translate(None, b"[{") == b"" else None
        brackets = left
    return None


def _spine(value: Any, brackets: bytes) -> list[Any] | None:
    """The lists and objects that are open at the end of a piece, of these kinds. Removes the mark of the innermost one.

    The last value of an object need not be the newest: its key may have been there before.
    """
    if value.__class__ is not (list if brackets[:1] == b"[" else dict):
        return None
    if len(brackets) == 1:
        return [value] if _unmarked(value) else None
    for inner in value[-1:] if isinstance(value, list) else reversed(value.values()):
        if (found := _spine(inner, brackets[1:])) is not None:
            return [value, *found]
    return None


def _unmarked(value: Any) -> bool:
    if isinstance(value, dict):
        return value.pop(END, None) is not None
    if value and value[-1] == END:
        value.pop()
        return True
    return False
