"""Calls after [TOOL_CALLS]: a JSON list of them, or name{...} with the marker before each one: Mistral.

Any name is taken: the marker is a special token. Between the name and the arguments may stand [CALL_ID]id and [ARGS];
the id is dropped.
"""

import random
import re
import string

from ramet.runtime.intake.parsers.json_calls import JsonCallsParser
from ramet.runtime.intake.parsers.pieces import Broken, Steps

ID_CHARACTERS = string.ascii_letters + string.digits

_NAMED = re.compile(r"([^\s\[\]{}\"]+)[ \t\r\n]*(?:\[CALL_ID\][^\[\]{}]*)?(?:\[ARGS\])?[ \t\r\n]*")


class MistralParser(JsonCallsParser):
    opens = "[TOOL_CALLS]"
    shows_special = True

    def new_id(self) -> str:
        return "".join(random.choices(ID_CHARACTERS, k=9))  # the template takes no others

    def _calls(self) -> Steps[None]:
        if (yield from self._text.skip_blanks()) == "[":
            yield from super()._calls()
            return
        named, self._text.at = yield from self._head(_NAMED)
        if named is None:
            raise Broken
        yield from self._object_call(named[1])
