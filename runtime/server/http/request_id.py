"""The id of a request: the same in its reply, its log line, /abort_request and /v1/requests/{id}.

It is the body's `rid`, or else one that is made here, followed by the value of the header X-Request-Id. The reply's
header repeats the value that was sent, or else has the id.
"""

import re
from urllib.parse import quote

from aiohttp import web
from msgspec import Struct

from ramet.runtime.intake import prompts

HEADER = "X-Request-Id"
ANTHROPIC_HEADER = "Request-Id"
PRINTABLE = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")  # other characters of a rid are quoted as in a URL
_WORD = re.compile(r"[\x21-\x7e]{1,256}")  # what a header and a log line can hold


class RequestId(Struct):
    """What is known of one request's id. It can go to the process that reads the body, and come back."""

    sent: str  # the value of the header; empty: there is none, or a log line could not hold it
    shown: str = ""  # in the header of the reply; empty: none was chosen yet

    def choose(self, made: str, rid: str | None) -> str:
        """Set and return the request's id. `made`: the id if the client names none.

        Several requests may send the same header, so its value alone is no id.
        """
        chosen = rid or (f"{made}:{self.sent}" if self.sent else made)
        self.shown = self.sent or chosen
        return chosen


_KEY = web.RequestKey("request_id", RequestId)


def id_of(request: web.Request) -> RequestId:
    if _KEY not in request:
        sent = request.headers.get(HEADER, "")
        request[_KEY] = RequestId(sent if _WORD.fullmatch(sent) else "")
    known: RequestId = request[_KEY]
    return known


def set_request_id(request: web.Request, made: str, rid: str | None) -> str:
    """`RequestId.choose` for a request."""
    return id_of(request).choose(made, rid)


def shown_id(request: web.Request) -> str:
    """Of one that is answered; empty: none was made, for its client went away before."""
    return id_of(request).shown


def made_id() -> str:
    """For a request whose handler made none."""
    return f"req-{prompts.new_id()}"


def id_headers(request_id: str) -> dict[str, str]:
    return dict.fromkeys((HEADER, ANTHROPIC_HEADER), quote(request_id, safe=PRINTABLE))
