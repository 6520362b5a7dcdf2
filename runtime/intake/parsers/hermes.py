"""Calls between <tool_call> and </tool_call>, each a JSON object: Hermes, Qwen 2.5, Qwen 3.

Decides the markers. Any name is taken: the tag says that it is a call. A closing tag that is missing is not missed.
"""

from ramet.runtime.intake.parsers.json_calls import JsonCallsParser
from ramet.runtime.intake.parsers.tools import tool_parser


@tool_parser("hermes", "qwen", "qwen25")
class HermesParser(JsonCallsParser):
    opens = "<tool_call>"
    closes = "</tool_call>"

    def _opened(self, text: str, at: int) -> int:
        self._begin_call()
        return at

    def _between(self, text: str, at: int) -> int:
        """One call to a tag."""
        self._state = self._after
        return at
