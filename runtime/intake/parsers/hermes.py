"""Calls between <tool_call> and </tool_call>, each a JSON object: Hermes, Qwen 2.5, Qwen 3.

Any name is taken: the tag says that it is a call. A closing tag that is missing is not missed.
"""

from ramet.runtime.intake.parsers.json_calls import JsonCallsParser
from ramet.runtime.intake.parsers.pieces import Steps


class HermesParser(JsonCallsParser):
    opens = "<tool_call>"
    closes = "</tool_call>"

    def _calls(self) -> Steps[None]:
        """One to a tag."""
        return self._call()
