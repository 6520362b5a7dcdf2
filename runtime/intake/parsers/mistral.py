"""Calls after [TOOL_CALLS]: a JSON list of them, or name{...} with the marker before each one: Mistral.

Decides which of the two it is, and what a name is. Any name is taken: the marker is a special token. Between the name
and the arguments may stand [CALL_ID]id and [ARGS]; the id is dropped.
"""

import random
import re
import string

from ramet.runtime.intake.parsers.json_calls import JsonCallsParser
from ramet.runtime.intake.parsers.markers import after_blanks
from ramet.runtime.intake.parsers.tools import tool_parser

ID_CHARACTERS = string.ascii_letters + string.digits
MAX_NAMED = 256  # characters from the marker to the arguments

_NAMED = re.compile(r"([^\s\[\]{}\"]+)[ \t\r\n]*(?:\[CALL_ID\][^\[\]{}]*)?(?:\[ARGS\])?[ \t\r\n]*")


@tool_parser("mistral")
class MistralParser(JsonCallsParser):
    opens = "[TOOL_CALLS]"
    shows_special = True

    def __init__(self, tools: frozenset[str]) -> None:
        super().__init__(tools)
        self._head = ""

    def new_id(self) -> str:
        return "".join(random.choices(ID_CHARACTERS, k=9))  # the template takes no others

    def _opened(self, text: str, at: int) -> int:
        first = after_blanks(text, at)
        self._raw.append(text[at:first])
        if first == len(text):
            return first
        if text[first] == "[":
            return self._begin_calls(text, first)
        self._head = ""
        self._state = self._named
        return first

    def _named(self, text: str, at: int) -> int:
        """From the name to the brace that opens the arguments."""
        end = min(len(text), at + MAX_NAMED - len(self._head))
        brace = text.find("{", at, end)
        end = brace if brace >= 0 else end
        self._head += text[at:end]
        self._raw.append(text[at:end])
        named = _NAMED.fullmatch(self._head) if brace >= 0 else None
        if named is not None:
            self._begin_arguments(named[1], self._after)
        elif brace >= 0 or len(self._head) == MAX_NAMED:
            self._give_back()
        return end
