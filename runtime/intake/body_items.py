"""How many keys, entries, lists and objects a JSON body has, counted before any of it becomes an object.

Decides which bodies are refused unparsed. A body is counted piece by piece as it comes. What stands between quotes is
told apart only where a body has too much with it, and piece by piece as well, so that others are served in between.
"""

from collections.abc import Iterator

from ramet.runtime.errors import ClientError
from ramet.runtime.intake.limits import KEYS_SHARE, OPENED_SHARE

Bytes = bytes | bytearray
AT_ONCE = 1 << 18  # bytes that are looked at before others are served: 0.3 ms, in strings full of marks 3 ms
NO_MARKS = bytes(set(range(256)) - set(b'"[{,:'))
NO_BRACKETS = bytes(set(range(256)) - set(b'"[]{}'))
AS_BRACKETS = bytes.maketrans(b"{}", b"[]")
HINT = "send it as several requests, or raise --max-body-items"


class ItemCount:
    """Counts a body's marks. `most`: --max-body-items."""

    def __init__(self, most: int) -> None:
        self._bounds = (
            (b"[{", "opening brackets", max(1, most // OPENED_SHARE)),
            (b",", "commas between values", most),
            (b":", "keys", max(1, most // KEYS_SHARE)),
        )
        self._most_strings = most + most // KEYS_SHARE
        self._counts = [0, 0, 0]

    def add(self, piece: Bytes) -> None:
        """The next bytes of the body, wherever they were cut."""
        for i, (marks, _, _) in enumerate(self._bounds):
            self._counts[i] += sum(piece.count(mark) for mark in marks)

    @property
    def num_opened(self) -> int:
        """Brackets that open, those in strings included."""
        return self._counts[0]

    @property
    def may_be_too_many(self) -> bool:
        """Whether `check` has to look at the body."""
        return any(count > most for count, (_, _, most) in zip(self._counts, self._bounds, strict=True))

    def check(self, body: Bytes) -> Iterator[None]:
        """Raises ClientError for more than may be parsed. Others may be served at each step."""
        if not self.may_be_too_many:
            return
        self._counts, num_quotes, in_string = [0, 0, 0], 0, False
        for piece in _pieces(body):
            marks = _without_escapes(piece).translate(None, NO_MARKS)
            self.add(_outside_strings(marks, in_string))
            num_quotes += marks.count(b'"')
            in_string = num_quotes % 2 == 1
            self._check_counts(num_quotes // 2)
            yield

    def _check_counts(self, num_strings: int) -> None:
        found = [(unit, count, most) for count, (_, unit, most) in zip(self._counts, self._bounds, strict=True)]
        for unit, count, most in [("strings", num_strings, self._most_strings), *found]:
            if count > most:
                raise ClientError("body", f"has more than {most} {unit}, must have at most {most}", HINT)


def counted(body: Bytes, most: int) -> ItemCount:
    """A small body's, all at once. Raises ClientError."""
    count = ItemCount(most)
    count.add(body)
    for _ in count.check(body):
        pass
    return count


def nests_deeper(levels: int, body: Bytes) -> bool:
    """Whether a valid JSON text nests deeper. Each step takes the innermost lists and objects away."""
    brackets = _outside_strings(_without_escapes(body).translate(None, NO_BRACKETS), False).translate(AS_BRACKETS)
    for _ in range(levels):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            break
    return bool(brackets)


def _without_escapes(body: Bytes) -> Bytes:
    """Every quote that is left begins or ends a string."""
    return body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body


def _outside_strings(marks: Bytes, in_string: bool) -> Bytes:
    """Quotes and marks without those quotes, and without the marks between them.

    Two quotes side by side are a string without marks, as some mark stands between two strings of valid JSON.
    """
    return b"".join(marks.replace(b'""', b"").split(b'"')[1 if in_string else 0 :: 2])


def _pieces(body: Bytes) -> Iterator[Bytes]:
    """No piece ends within an escape, as each begins outside of one."""
    start = 0
    while start < len(body):
        piece = body[start : start + AT_ONCE]
        num_backslashes = len(piece) - len(piece.rstrip(b"\\"))
        if num_backslashes % 2:
            piece = body[start : start + AT_ONCE + 1]
        yield piece
        start += len(piece)
