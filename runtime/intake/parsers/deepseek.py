"""Calls between <｜tool▁calls▁begin｜> and <｜tool▁calls▁end｜>, each in markers of its own: DeepSeek V3, R1, V3.1.

Decides where the name of a call is: after the separator, the arguments in a code fence (V3, R1), or before it, the
arguments right behind (V3.1). Any name is taken: the markers are special tokens. Where one that closes is missing, or
the fence does not end, the call stands. The marker in front of the calls may not be missing.
"""

import re

from ramet.runtime.intake.parsers.marked import MarkedParser
from ramet.runtime.intake.parsers.pieces import Broken, Steps
from ramet.runtime.intake.parsers.structure import Part, among_text, json_of, separated, tag
from ramet.runtime.intake.parsers.tools import Offer

CALL_OPENS = "<｜tool▁call▁begin｜>"
CALL_CLOSES = "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"
FENCE = "```"

_BLANK = r"[ \t\r\n]*"
_NAME = r"[^\s{}`<]+"
_HEAD = re.compile(
    rf"{_BLANK}{CALL_OPENS}{_BLANK}(?P<first>{_NAME}){_BLANK}{SEPARATOR}"
    rf"{_BLANK}(?P<second>{_NAME})?{_BLANK}(?P<fence>{FENCE}(?:json)?{_BLANK})?"
)


class DeepseekParser(MarkedParser):
    opens = "<｜tool▁calls▁begin｜>"
    closes = "<｜tool▁calls▁end｜>"
    shows_special = True

    @classmethod
    def calls_form(cls, offers: list[Offer], single: bool) -> Part:
        """In either of the two ways: the model writes the one that it knows."""
        fenced = [
            tag(f"{CALL_OPENS}function{SEPARATOR}{name}\n{FENCE}json\n", json_of(schema), f"\n{FENCE}{CALL_CLOSES}")
            for name, schema in offers
        ]
        plain = [tag(f"{CALL_OPENS}{name}{SEPARATOR}", json_of(schema), CALL_CLOSES) for name, schema in offers]
        return tag(cls.opens, separated(fenced + plain, "\n", single), cls.closes)

    @classmethod
    def text_form(cls, offers: list[Offer], single: bool) -> Part:
        return among_text(cls.opens, [cls.calls_form(offers, single)], single)

    def _calls(self) -> Steps[None]:
        text = self._text
        while True:
            head, brace = yield from self._head(_HEAD)
            if head is None:
                raise Broken
            text.at = brace
            yield from self._object_call(head["second"] or head["first"])
            if head["fence"]:
                yield from text.passes(FENCE)
            yield from text.passes(CALL_CLOSES)
            yield from text.skip_blanks()
            if not (yield from text.begins(CALL_OPENS)):
                return
            text.hold()
