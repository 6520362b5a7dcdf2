"""Calls as a Python list, [f(city="Rome", n=2), g()], at the start of the output or after <|python_start|>: Llama 4.

Decides what is a call: a name that the request offers, with keyword arguments only. Knows literals by literal.py.
A call starts when its first argument is complete, or with its closing parenthesis; every argument goes out when it is
complete. What cannot be (an argument without a keyword, a bracket that closes nothing) makes a call that has not
started content, as in every format; one that has started keeps the arguments that are complete, is left open, and the
text after them is content.
"""

from ramet.runtime.intake.parsers.literal import LiteralScan, as_json
from ramet.runtime.intake.parsers.marked import MarkedParser, State
from ramet.runtime.intake.parsers.markers import BLANKS, MAX_BLANKS, after_blanks
from ramet.runtime.intake.parsers.tools import CallStart, tool_parser

MAX_WORD = 256  # characters of a name or a keyword


@tool_parser("pythonic")
class PythonicParser(MarkedParser):
    """start -> name -> argument -> keyword -> equals -> value -> argument ... -> between -> name ... -> after"""

    opens = "<|python_start|>"
    closes = "<|python_end|>"
    shows_special = True

    def __init__(self, tools: frozenset[str]) -> None:
        super().__init__(tools)
        self._word = ""  # the name of a call, then a keyword
        self._word_ended = False  # white space came after it
        self._name = ""
        self._started = False  # the call: its name was said
        self._num_arguments = 0
        self._value = LiteralScan()
        self._state, self._calm = self._start, False

    def _start(self, text: str, at: int) -> int:
        """The very start of the output."""
        first = after_blanks(text, at)
        if first == len(text) and first - at <= MAX_BLANKS:
            return at
        self._state = self._plain
        if first - at <= MAX_BLANKS and text[first] == "[":
            self._raw.append(text[at:first])
            self._state = self._opened
            return first
        return at

    def _opened(self, text: str, at: int) -> int:
        at = self._skip(text, at)
        if at == len(text):
            return at
        if text[at] != "[":
            self._give_back()
            return at
        self._begin_word(self._named)
        self._raw.append("[")
        return at + 1

    def _named(self, text: str, at: int) -> int:
        """The name of a call, up to its parenthesis."""
        end = self._read_word(text, at, "_.-")
        if end == len(text):
            return end
        if text[end] != "(" or self._word not in self.tools:
            self._give_back()
            return end
        self._name, self._started, self._num_arguments = self._word, False, 0
        return self._read_one(text, end, self._argument)

    def _argument(self, text: str, at: int) -> int:
        """Before a keyword or the closing parenthesis."""
        at = self._skip(text, at)
        if at == len(text):
            return at
        if text[at] == ")":
            return self._end_call(at)
        self._begin_word(self._keyword)
        return at

    def _keyword(self, text: str, at: int) -> int:
        end = self._read_word(text, at, "_")
        if end == len(text):
            return end
        if text[end] != "=" or not self._word.isidentifier():
            self._give_back()
            return end
        return self._read_one(text, end, self._equals)

    def _equals(self, text: str, at: int) -> int:
        """After the sign: a second one makes it a comparison, which is no keyword argument."""
        if text[at] == "=":
            self._give_back()
            return at
        self._value = LiteralScan()
        self._state = self._in_value
        return at

    def _in_value(self, text: str, at: int) -> int:
        end = self._value.feed(text, at)
        self._raw.append(text[at:end])
        if self._value.broken:
            self._give_back()
        if not self._value.done:
            return end
        self._say_value()
        return self._end_call(end) if text[end] == ")" else self._read_one(text, end, self._argument)

    def _between(self, text: str, at: int) -> int:
        """After a call."""
        at = after_blanks(text, at)
        if at == len(text):
            return at
        if text[at] == "]":
            self._state = self._after
            return at + 1
        if text[at] == ",":
            return self._read_one(text, at, self._next)
        self._give_back()
        return at

    def _next(self, text: str, at: int) -> int:
        """After the comma between two calls; Python allows one before the end as well."""
        at = self._skip(text, at)
        if at < len(text) and text[at] == "]":
            self._raw.clear()
            self._state = self._after
            return at + 1
        if at < len(text):
            self._begin_word(self._named)
        return at

    def _start_call(self) -> None:
        if not self._started:
            self._events.append(CallStart(self._name))
        self._started = True
        self._raw.clear()

    def _say_value(self) -> None:
        self._start_call()
        opening = ", " if self._num_arguments else "{"
        self._say_arguments(f"{opening}{as_json(self._word)}: {self._value.json()}")
        self._num_arguments += 1

    def _end_call(self, at: int) -> int:
        self._start_call()
        self._say_arguments("}" if self._num_arguments else "{}")
        self._state = self._between
        return at + 1

    def _begin_word(self, state: State) -> None:
        self._word, self._word_ended = "", False
        self._state = state

    def _read_word(self, text: str, at: int, joiners: str) -> int:
        """Reads a word and the white space around it; returns the first character after them."""
        begin = at
        while at < len(text) and self._takes(text[at], joiners):
            at += 1
        self._raw.append(text[begin:at])
        return at

    def _takes(self, char: str, joiners: str) -> bool:
        if char in BLANKS:
            self._word_ended = bool(self._word)
            return True
        if self._word_ended or len(self._word) == MAX_WORD or not (char.isalnum() or char in joiners):
            return False
        self._word += char
        return True

    def _read_one(self, text: str, at: int, state: State) -> int:
        self._raw.append(text[at])
        self._state = state
        return at + 1

    def _skip(self, text: str, at: int) -> int:
        first = after_blanks(text, at)
        self._raw.append(text[at:first])
        return first
