"""Calls as a Python list, [f(city="Rome", n=2), g()], at the start of the output or after <|python_start|>: Llama 4.

A call is a name that the request offers, with keyword arguments only. It starts when its first argument is complete, or
with its closing parenthesis; every argument goes out when it is complete. What cannot be (an argument without a
keyword, a bracket that closes nothing) makes a call that has not started content, as in every format; one that has
started keeps the arguments that are complete, is left open, and the text after them is content.
"""

import re

from ramet.runtime.intake.parsers.marked import MarkedParser
from ramet.runtime.intake.parsers.pieces import MAX_HELD, Broken, CallPieces, Steps
from ramet.runtime.intake.parsers.python_arguments import patterns_of
from ramet.runtime.intake.parsers.python_values import NoLiteral, as_json, written
from ramet.runtime.intake.parsers.structure import Part, literal, matching, separated, tag
from ramet.runtime.intake.parsers.tools import Offer

MAX_WORD = 256  # characters of a name or a keyword
MAX_CODE = 1 << 14  # characters outside strings: they become objects, those of a string do not
MAX_NESTED = 50  # brackets inside each other

_NAME = re.compile(r"[\w.-]*")
_KEYWORD = re.compile(r"\w*")
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_SPACE = re.compile(r"\s*")
_CODE = re.compile(r"[^\"'()\[\]{},]*")
_IN_STRING = {quote: re.compile(rf"(?:[^{quote}\\]+|\\.)*", re.DOTALL) for quote in "\"'"}


class PythonicParser(MarkedParser):
    opens = "<|python_start|>"
    closes = "<|python_end|>"
    starts = ("[",)
    shows_special = True

    @classmethod
    def calls_form(cls, offers: list[Offer], single: bool) -> Part:
        return cls._list(offers, single, "[", "]")

    @classmethod
    def text_form(cls, offers: list[Offer], single: bool) -> Part:
        marked = cls._list(offers, single, f"{cls.opens}[", f"]{cls.closes}")
        return cls._bare_or_marked(cls.calls_form(offers, single), [marked])

    @classmethod
    def _list(cls, offers: list[Offer], single: bool, begin: str, end: str) -> Part:
        tags = [
            tag(f"{offer.name}(", matching(pattern), ")") if pattern else tag(offer.name, literal("("), ")")
            for offer, pattern in zip(offers, patterns_of(offers), strict=True)
        ]
        return tag(begin, separated(tags, ", ", single), end)

    def _calls(self) -> Steps[None]:
        text = self._text
        yield from text.skip_blanks()
        yield from text.one_of("[")
        while True:
            yield from self._call()
            comma = (yield from text.skip_blanks()) == ","
            text.hold()
            text.at += comma
            if (yield from text.skip_blanks()) == "]":  # Python allows a comma before it as well
                text.at += 1
                text.release()
                return
            if not comma:
                raise Broken

    def _call(self) -> Steps[None]:
        text = self._text
        name = yield from self._word(_NAME)
        if name not in self.tools:
            raise Broken
        yield from text.one_of("(")
        opening = "{"
        while (yield from text.skip_blanks()) != ")":
            argument = yield from self._argument()
            if opening == "{":
                self._begin_call(name)
            self._say_arguments(opening + argument)
            opening = ", "
            text.hold()
            text.at += (yield from text.peek()) == ","
        text.at += 1
        if opening == "{":
            self._begin_call(name)
        text.release()
        self._say_arguments("}" if opening == ", " else "{}")

    def _argument(self) -> Steps[str]:
        """Its JSON, with the key."""
        text, literal = self._text, Literal()
        keyword = yield from self._word(_KEYWORD)
        if not keyword.isidentifier():
            raise Broken
        yield from text.one_of("=")
        if (yield from text.peek()) == "=":  # a comparison
            raise Broken
        source = yield from text.word(literal.read(text), MAX_HELD)
        return f"{as_json(keyword)}: {literal.json(source.strip())}"

    def _word(self, pattern: re.Pattern[str]) -> Steps[str]:
        """A word and the white space around it."""
        yield from self._text.skip_blanks()
        word = yield from self._text.word(self._text.run(pattern), MAX_WORD + 1)
        yield from self._text.skip_blanks()
        return word


class Literal:
    """The value of a keyword argument. Read it, then ask for its JSON."""

    def read(self, text: CallPieces) -> Steps[None]:
        """Up to the comma or the bracket that is not its own."""
        closers: list[str] = []  # of the open brackets
        self._deepest, begin = 0, text.place
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
        """The JSON of a literal. Other source, or source too long or nested to parse quickly, becomes a JSON string."""
        if self._num_code > MAX_CODE or self._deepest > MAX_NESTED:
            return as_json(source)
        try:
            return written(source)
        except NoLiteral:
            return as_json(source)


def _string(text: CallPieces) -> Steps[None]:
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
