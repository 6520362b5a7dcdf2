"""Server-sent events of one request: waits, writes, and ends as it should whatever happened.

Decides when the headers go out (with the first news, so that a refused request still gets its status), and that a
failure after that is an event. Knows no event's content. A slow reader blocks only its own handler: what comes in
the meantime stays with the sequences and leaves with one write.
"""

from collections.abc import Callable
from typing import Any

import orjson
from aiohttp import web

from ramet.runtime.engine_client import failures
from ramet.runtime.engine_client.submission import Sequence, Submission
from ramet.runtime.errors import RametError
from ramet.runtime.log import LOGGER
from ramet.runtime.server.http import problems

HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
DONE = b"data: [DONE]\n\n"

Events = Callable[[list[Sequence]], bytes]
Failure = Callable[[RametError], bytes]


def event(kind: str, body: dict[str, Any]) -> bytes:
    """An event with a name, as the endpoints send it whose clients look for one."""
    return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps({"type": kind, **body}) + b"\n\n"


async def stream(
    request: web.Request,
    submission: Submission,
    events: Events,
    last: Callable[[], bytes] = bytes,
    *,
    failure: Failure = problems.event,
    done: bytes = DONE,
) -> web.StreamResponse:
    """`events` renders what is new; `last` follows the end of every sequence, `failure` tells of one that broke off.

    `done` goes last, in either case.
    """
    fresh = await submission.next()
    response = web.StreamResponse(headers=HEADERS)
    await response.prepare(request)
    try:
        while fresh:
            await response.write(events(fresh))
            fresh = await submission.next()
        ending = last()
    except RametError as error:
        ending = failure(error)
    except ConnectionError:
        raise
    except Exception:  # noqa: BLE001  the status has gone out: the failure must be an event
        LOGGER.exception("%s failed within its stream", request.path)
        ending = failure(failures.internal())
    await response.write(ending + done)
    await response.write_eof()
    return response
