"""Calls as JSON objects with "parameters", after <|python_tag|> or at the very start of the output: Llama 3.

Without the tag, a call is an output that starts with { or [ where the name is one that the request offers. After the
tag any name is taken.
"""

from ramet.runtime.intake.parsers.json_calls import JsonCallsParser


class LlamaParser(JsonCallsParser):
    opens = "<|python_tag|>"
    starts = ("{", "[")
    shows_special = True
    separators = ";,"
