"""Calls as JSON objects with "parameters", after <|python_tag|> or at the very start of the output: Llama 3.

Decides what is a call without the tag: an output that starts with { or [, where the name is one that the request
offers. After the tag any name is taken.
"""

from ramet.runtime.intake.parsers.json_calls import JsonCallsParser
from ramet.runtime.intake.parsers.markers import MAX_BLANKS, after_blanks
from ramet.runtime.intake.parsers.tools import tool_parser


@tool_parser("llama3-json", "llama3", "llama3_json")
class LlamaParser(JsonCallsParser):
    opens = "<|python_tag|>"
    shows_special = True
    separators = ";,"

    def __init__(self, tools: frozenset[str]) -> None:
        super().__init__(tools)
        self._tagged = False
        self._state, self._calm = self._start, False

    def _accepts(self, name: str) -> bool:
        return self._tagged or name in self.tools

    def _start(self, text: str, at: int) -> int:
        """The very start of the output."""
        first = after_blanks(text, at)
        if first - at > MAX_BLANKS:
            self._state = self._plain
        elif first < len(text) and text[first] in "{[":
            self._raw.append(text[at:first])
            return self._begin_calls(text, first)
        elif first < len(text):
            self._state = self._plain
        return at

    def _opened(self, text: str, at: int) -> int:
        self._tagged = True
        first = after_blanks(text, at)
        self._raw.append(text[at:first])
        return self._begin_calls(text, first) if first < len(text) else first
