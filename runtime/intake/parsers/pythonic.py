"""Calls as a Python list, [f(city="Rome", n=2), g()], at the start of the output or after <|python_start|>: Llama 4.

Decides what is a call: a name that the request offers, with keyword arguments only. Knows literals by literal.py.
A call starts when its first argument is complete, or with its closing parenthesis; every argument goes out when it is
complete. What cannot be (an argument without a keyword, a bracket that closes nothing) makes a call that has not
started content, as in every format; one that has started keeps the arguments that are complete, is left open, and the
text after them is content.
"""

import re

from ramet.runtime.intake.parsers.literal import Literal, as_json
from ramet.runtime.intake.parsers.marked import MarkedParser
from ramet.runtime.intake.parsers.pieces import MAX_HELD, Broken, Steps

MAX_WORD = 256  # characters of a name or a keyword

_NAME = re.compile(r"[\w.-]*")
_KEYWORD = re.compile(r"\w*")


class PythonicParser(MarkedParser):
    opens = "<|python_start|>"
    closes = "<|python_end|>"
    starts = ("[",)
    shows_special = True

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
