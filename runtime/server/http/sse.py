"""Server-sent events: how one is written, and the stream of one request.

The headers are sent with the first event, so that a refused request still gets its status; a failure after that is an
event. A slow client blocks only its own handler: tokens that arrive meanwhile stay in their sequences and are sent by
one write. Events of many sequences are made and written a few at a time, and others are served in between.
"""

import asyncio
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Many
from functools import cache, partial
from itertools import chain
from typing import Any, NamedTuple

from aiohttp import web
from msgspec import Struct

from ramet.runtime.engine_client.submission import Submission
from ramet.runtime.errors import RametError
from ramet.runtime.log import LOGGER
from ramet.runtime.server.http import problems
from ramet.runtime.server.http.exchange import encode, pieces_of, write_in_turn

HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
DONE = b"data: [DONE]\n\n"
BLANKS = bytes.maketrans(b"\r\n", b"  ")
HOLE: Any = "\0"

Events = bytes | Iterator[bytes]  # that may be long are made as they are written
Writer = Callable[[], Events]
SEQUENCES_AT_ONCE = 64  # whose events are made in one go: 1 to 3 ms


class Writers(dict[int, Writer]):
    """What writes the events of each sequence, by its index; made with its first event."""

    def __init__(self, make: Callable[[int], Writer]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, index: int) -> Writer:
        made = self[index] = self._make(index)
        return made


def event(body: Struct) -> bytes:
    return b"data: " + _on_one_line(encode(body)) + b"\n\n"


def long_event(body: Struct) -> Iterator[bytes]:
    """An event whose lists may be long, in pieces."""
    yield b"data: "
    yield from map(_on_one_line, pieces_of(body))
    yield b"\n\n"


def named(body: Struct) -> bytes:
    """An event whose name is its `type`."""
    return _head(type(body)) + _on_one_line(encode(body)) + b"\n\n"


def _on_one_line(written: bytes) -> bytes:
    """JSON without line breaks, which end an event's data: a schema may have some, as its client wrote it."""
    return written.translate(BLANKS) if b"\n" in written or b"\r" in written else written


@cache
def _head(kind: type[Struct]) -> bytes:
    return f"event: {kind.__struct_config__.tag}\ndata: ".encode()


class Frame(NamedTuple):
    """The bytes before and behind the one value in which a stream's events differ."""

    head: bytes
    tail: bytes

    def around(self, value: Any) -> bytes:
        return self.head + encode(value) + self.tail


def frame(body: Struct) -> Frame:
    """`body` has HOLE in the place of the value, and no text of a client behind it."""
    head, _, tail = event(body).rpartition(encode(HOLE))
    return Frame(head, tail)


def broken(path: str, error: RametError) -> bytes:
    """The last event of a stream that cannot go on, in the shape of its path."""
    body = problems.in_stream(path, error)
    return named(body) if isinstance(body, problems.AnthropicError) else event(body)


async def stream(
    request: web.Request,
    submission: Submission,
    writers: Many[Writer] | Writers,
    last: Callable[[], bytes] = bytes,
    *,
    failure: Callable[[RametError], bytes] | None = None,
    done: bytes = DONE,
) -> web.StreamResponse:
    """`last` follows when all sequences have ended, `failure` when the request failed; then `done` in both cases.

    `writers`: for each sequence what returns the events of all that is new.
    """
    failure = failure or partial(broken, request.path)
    fresh = await submission.next(SEQUENCES_AT_ONCE)
    response = web.StreamResponse(headers=HEADERS)
    await response.prepare(request)
    try:
        while fresh:
            await _write(response, [writers[sequence.index]() for sequence in fresh])
            if len(fresh) == SEQUENCES_AT_ONCE:
                await asyncio.sleep(0)
            fresh = await submission.next(SEQUENCES_AT_ONCE)
        ending = last()
    except RametError as error:
        ending = failure(error)
    except ConnectionError:
        raise
    except Exception:  # noqa: BLE001  the status has gone out: the failure must be an event
        LOGGER.exception("%s failed within its stream", request.path)
        ending = failure(problems.internal())
    await response.write(ending + done)
    await response.write_eof()
    return response


async def _write(response: web.StreamResponse, events: list[Events]) -> None:
    whole = [made for made in events if isinstance(made, bytes)]
    if len(whole) == len(events):
        await response.write(b"".join(whole))
    else:
        pieces = ([made] if isinstance(made, bytes) else made for made in events)
        await write_in_turn(response, chain.from_iterable(pieces))
