"""JSON that arrives in pieces: strict (RFC 8259) outside strings, at most MAX_DEPTH deep.

Models write line breaks and backslashes into strings as they are: `Pieces.passing` says them escaped. Nothing but the
digits of an escape is held back: a character is read, or refused with Broken, as soon as it is there.
"""

import codecs
import json
import re

from ramet.runtime.intake.parsers.pieces import BLANKS, Broken, CallPieces, Steps

MAX_DEPTH = 100
MAX_DIGITS = 1000  # characters of one number

_VALUE, _FIRST_ITEM = '{["-0123456789tfn', '{["-0123456789tfn]'
_KEY, _FIRST_KEY = '"', '"}'
_CLOSERS = {"{": "}", "[": "]"}
_IN_STRING = re.compile(r'(?:[^"\\\x00-\x1f]+|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*')
_ESCAPE = re.compile(r'["\\/bfnrt]|u[0-9a-fA-F]{4}')  # without its backslash
_ESCAPE_START = re.compile("u[0-9a-fA-F]{0,3}")
_ATOM_START = re.compile(
    r"t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?"
    r"|-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?[0-9]*)?)?"
)
_WORDS = frozenset(("true", "false", "null"))


def value(text: CallPieces, starts: str = _VALUE) -> Steps[None]:
    """White space, and a value that begins with one of `starts`."""
    closers: list[str] = []  # of the open brackets
    follows = starts  # the characters that may come
    while True:
        char = text.text[text.at] if text.at < text.end else ""
        if char in BLANKS:
            char = yield from text.skip_blanks()
        if char not in follows or (char in _CLOSERS and len(closers) == MAX_DEPTH):
            raise Broken
        if char in "{[]},:":
            text.at += 1
        elif char == '"':
            text.at += 1
            yield from in_string(text)
            text.at += 1
        else:
            yield from _atom(text)
        follows = _after(char, follows, closers)
        if not follows:
            return


def _after(char: str, followed: str, closers: list[str]) -> str:
    """What may follow what begins with this character, and is one of `followed`; nothing where all has ended."""
    if char in _CLOSERS:
        closers.append(_CLOSERS[char])
        return _FIRST_KEY if char == "{" else _FIRST_ITEM
    if char in ",:":
        return _KEY if char == "," and closers[-1] == "}" else _VALUE
    if char in "]}":
        closers.pop()
    elif followed in (_KEY, _FIRST_KEY):
        return ":"
    return "," + closers[-1] if closers else ""


def is_whole(text: str, starts: str = _VALUE) -> bool:
    """Whether all of a value that begins with one of `starts` is there."""
    pieces = CallPieces()
    pieces.add(text)
    try:
        for _ in value(pieces, starts):
            return False
    except Broken:
        return False
    return True


def in_string(text: CallPieces) -> Steps[None]:
    """The inside of a string, up to the quote that ends it."""
    while (char := (yield from text.run(_IN_STRING))) != '"':
        if char == "\\":
            text.at += 1
            yield from _escaped(text)
        else:
            text.repair(1, json.dumps(char)[1:-1])


def _escaped(text: CallPieces) -> Steps[None]:
    """What a backslash escapes. One that escapes nothing stands for itself."""
    while True:
        known = text.text[text.at : min(text.end, text.at + 5)]
        if (found := _ESCAPE.match(known)) is not None:
            text.at += found.end()
            return
        if known and not _ESCAPE_START.fullmatch(known):
            text.repair(0, "\\")
            return
        text.may_wait(ahead=len(known))
        yield


def _atom(text: CallPieces) -> Steps[None]:
    """A number, or one of the words."""
    atom = ""
    while atom not in _WORDS:
        known = atom + text.text[text.at : min(text.end, text.at + MAX_DIGITS + 1)]  # one more shows that it has ended
        found = _ATOM_START.match(known)
        assert found is not None  # it matches nothing as well
        text.at += min(found.end(), MAX_DIGITS) - len(atom)
        atom = found[0]
        if atom != known or len(atom) > MAX_DIGITS:
            break
        text.may_wait()
        yield
    if len(atom) > MAX_DIGITS or not (atom in _WORDS or atom[-1:].isdigit()):
        raise Broken


_WHOLE = re.compile(r"(?:[^\\]+|\\[^u]|\\u[0-9a-fA-F]{4})*")


class StringDecoder:
    """The inside of a valid JSON string, in pieces: its text. Half of a surrogate pair alone becomes U+FFFD."""

    def __init__(self) -> None:
        self._held = ""  # the beginning of an escape
        self._units = codecs.getincrementaldecoder("utf-16-le")("replace")  # joins pairs

    def push(self, raw: str, last: bool = False) -> str:
        raw = self._held + raw
        found = _WHOLE.match(raw)
        assert found is not None
        self._held = raw[found.end() :]
        text: str = json.loads(f'"{found[0]}"')
        return self._units.decode(text.encode("utf-16-le", "surrogatepass"), last)
