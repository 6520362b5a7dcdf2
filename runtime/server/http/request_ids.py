"""The id of a request: what its reply, its log line, /abort_request and /v1/requests/{id} call it.

Decides where it comes from: the body's `rid`, else made here, with the word of the header X-Request-Id behind it. The
reply's header is the word that was sent, or else the id.
"""

import re
from urllib.parse import quote

from aiohttp import web

from ramet.runtime.intake import prompts

HEADER = "X-Request-Id"
ANTHROPIC_HEADER = "Request-Id"
_KEY = web.RequestKey("request_id", str)
PRINTABLE = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")  # the rest of a body's rid is quoted as in a URL
_WORD = re.compile(r"[\x21-\x7e]{1,256}")  # what a header and a log line can hold


def of_request(request: web.Request, made: str, rid: str | None) -> str:
    """The request's id, from here on. `made`: what it is if the client names none.

    The header's word does not have to be anybody's own, so it only stands behind what was made.
    """
    sent = request.headers.get(HEADER, "")
    known = _WORD.fullmatch(sent) is not None
    chosen = rid or (f"{made}:{sent}" if known else made)
    request[_KEY] = sent if known else chosen
    return chosen


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Called as the headers of a response go out."""
    if _KEY not in request:
        of_request(request, f"req-{prompts.new_id()}", None)
    response.headers[HEADER] = response.headers[ANTHROPIC_HEADER] = quote(request[_KEY], safe=PRINTABLE)
