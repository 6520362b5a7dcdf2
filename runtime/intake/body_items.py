"""How many keys, entries, lists and objects a JSON body has, counted before any of it becomes an object.

Decides which bodies are refused unparsed. A body is counted piece by piece, where it is parsed. Marks inside strings
are counted at first; only if the counts are too high are they excluded, again piece by piece.
"""

from collections.abc import Iterator, Sequence

from ramet.runtime.errors import ClientError
from ramet.runtime.intake.limits import KEYS_SHARE, OPENED_SHARE

Bytes = bytes | bytearray
AT_ONCE = 1 << 18  # bytes of a piece: 0.3 ms of work, 3 ms for strings full of marks
NO_MARKS = bytes(set(range(256)) - set(b'"[{,:'))
NO_BRACKETS = bytes(set(range(256)) - set(b'"[]{}'))
AS_BRACKETS = bytes.maketrans(b"{}", b"[]")
# digits become 0, points and E become e, which begin no number, and all else but signs, which are removed, a space
TOKENS = bytes(ord("0") if chr(i) in "0123456789" else ord("e") if chr(i) in ".eE" else ord(" ") for i in range(256))
HINT = "send it as several requests, or raise --max-body-items"


class ItemCount:
    """Counts a body's marks. `most`: --max-body-items. `most_exact`: of it, numbers that are read digit by digit."""

    def __init__(self, most: int) -> None:
        self._bounds = (
            (b"[{", "lists and objects", max(1, most // OPENED_SHARE)),
            (b",", "entries of lists and objects", most),
            (b":", "keys", max(1, most // KEYS_SHARE)),
        )
        self.most_exact = max(1, most // OPENED_SHARE)
        self._most_strings = most + most // KEYS_SHARE
        self._counts = [0, 0, 0]

    def add(self, part: Bytes) -> None:
        """Count the next bytes of the body, which may be cut anywhere."""
        for start in range(0, len(part), AT_ONCE):
            for i, (marks, _, _) in enumerate(self._bounds):
                self._counts[i] += sum(part.count(mark, start, start + AT_ONCE) for mark in marks)

    @property
    def num_marks(self) -> int:
        """How many commas and opening brackets the bodies have; those in strings may be counted as well."""
        return self._counts[0] + self._counts[1]

    @property
    def num_opened(self) -> int:
        """The number of opening brackets, including those in strings."""
        return self._counts[0]

    @property
    def may_be_too_many(self) -> bool:
        """Whether `check` has to look at the body."""
        return any(count > most for count, (_, _, most) in zip(self._counts, self._bounds, strict=True))

    def check(self, *bodies: Bytes) -> None:
        """Raises ClientError if the bodies that were added have too many items to parse."""
        if not self.may_be_too_many:
            return
        self._counts = [0, 0, 0]
        for body in bodies:
            num_quotes, in_string = 0, False
            for piece in _pieces(body):
                marks = _without_escapes(piece).translate(None, NO_MARKS)
                self.add(_outside_strings(marks, in_string))
                num_quotes += marks.count(b'"')
                in_string = num_quotes % 2 == 1
                self._check_counts(num_quotes // 2)

    def _check_counts(self, num_strings: int) -> None:
        found = [(unit, count, most) for count, (_, unit, most) in zip(self._counts, self._bounds, strict=True)]
        for unit, count, most in [("strings", num_strings, self._most_strings), *found]:
            if count > most:
                raise ClientError("body", f"has more than {most} {unit}, must have at most {most}", HINT)


def check_numbers(texts: Sequence[tuple[str, Bytes]], most: int) -> None:
    """Raises ClientError if these JSON texts, each with the field it came in, have more than `most` numbers together.

    Digits in strings are counted at first, as marks of bodies are.
    """
    if sum(_num_tokens(b" " + text) for _, text in texts) <= most:
        return
    left = most
    for place, text in texts:
        num_quotes, last = 0, b" "
        for piece in _pieces(text):
            whole = _without_escapes(piece)
            outside = last + _outside_strings(whole, num_quotes % 2 == 1)
            num_quotes, last = num_quotes + whole.count(b'"'), outside[-1:]
            left -= _num_tokens(outside)
            if left < 0:
                fact = f"has more than {most} numbers beside one of 16 digits or more, must have at most {most}"
                raise ClientError(place, fact, HINT)


def _num_tokens(text: Bytes) -> int:
    """How many numbers begin in a text, behind its first byte."""
    num, start = 0, 0
    while start < len(text) - 1:
        stop = start + AT_ONCE
        stop -= text[stop : stop + 1] in (b"+", b"-")  # a sign stays with what is before and behind it
        num += text[start : stop + 1].translate(TOKENS, b"+-").count(b" 0")
        start = stop
    return num


def nests_deeper(levels: int, body: Bytes) -> bool:
    """Whether a valid JSON text nests deeper. Each step removes the innermost lists and objects."""
    brackets = brackets_in(body).translate(AS_BRACKETS)
    for _ in range(levels):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            break
    return bool(brackets)


def brackets_in(text: Bytes) -> Bytes:
    """The brackets outside of strings, of JSON that begins outside of one."""
    found, num_quotes = list[Bytes](), 0
    for piece in _pieces(text):
        marks = _without_escapes(piece).translate(None, NO_BRACKETS)
        found.append(_outside_strings(marks, num_quotes % 2 == 1))
        num_quotes += marks.count(b'"')
    return b"".join(found)


def _without_escapes(body: Bytes) -> Bytes:
    """The body without escaped quotes: each remaining quote begins or ends a string."""
    return body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body


def _outside_strings(marks: Bytes, in_string: bool) -> Bytes:
    """The marks that are outside strings, given marks and quotes.

    Two adjacent quotes are a string without marks, because two strings of valid JSON have a mark between them.
    """
    return b"".join(marks.replace(b'""', b"").split(b'"')[1 if in_string else 0 :: 2])


def _pieces(body: Bytes) -> Iterator[Bytes]:
    """Split the body into pieces that do not end within an escape."""
    start = 0
    while start < len(body):
        piece = body[start : start + AT_ONCE]
        num_backslashes = len(piece) - len(piece.rstrip(b"\\"))
        if num_backslashes % 2:
            piece = body[start : start + AT_ONCE + 1]
        yield piece
        start += len(piece)
