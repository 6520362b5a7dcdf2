"""One HTTP request and its reply: the request's id, its body as JSON, the reply as JSON.

Every request belongs to a trace: the one that its headers name, or else one that is made here.
The id of a request is the same in its reply, its log line, /abort_request and /v1/requests/{id}. It is the body's
`rid`, or else one that is made here, followed by the value of the header X-Request-Id. The reply's header repeats the
value that was sent, or else has the id.
"""

import asyncio
import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from aiohttp import web
from msgspec import Struct

from ramet.runtime import exact_json
from ramet.runtime.engine_client.trace_context import CURRENT, TraceContext, read
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.misspelt import ALIKE, UNREAD, meant
from ramet.runtime.log import LOGGER
from ramet.runtime.long_list import LongList
from ramet.runtime.server.http.receiving import received

R = TypeVar("R")
T = TypeVar("T", bound=Struct)
HEADER = "X-Request-Id"
ANTHROPIC_HEADER = "Request-Id"
READ_BODY: web.RequestKey[Struct | None] = web.RequestKey("read_body", Struct)  # there where the body is to be kept
_KEY = web.RequestKey("request_id", str)
_TRACE = web.RequestKey("trace", TraceContext)
PRINTABLE = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")  # other characters of a rid are quoted as in a URL
_WORD = re.compile(r"[\x21-\x7e]{1,256}")  # what a header and a log line can hold

encode = exact_json.encode
MAX_PIECES = 8  # of a reply that are made before others are served: four parts of a long list
MAX_TURN = 1 << 16  # bytes of a reply that are made and written before others are served
_HOLE = b"\0"  # stands in no JSON, which escapes it


async def read_object(request: web.Request, make: Callable[[dict[str, Any]], R]) -> R:
    """What `make` makes of the body as a JSON object. A large body takes long: other requests are served meanwhile.

    Raises what `make` raises, and ClientError: 413 if it is too large, 408 if it takes too long, else 400.
    """
    return await received(request, make)


async def read_body(request: web.Request, type_: type[T], check: Callable[[dict[str, Any]], None] | None = None) -> T:
    """The body as a struct. Raises as `read_object`, also for a field of the wrong type. `check`: raises for an object
    that is not worth the time that its fields take.
    """

    def made(written: dict[str, Any]) -> T:
        if check is not None:
            check(written)
        return convert(written, type_)

    return _kept(request, await received(request, made))


async def read_command(request: web.Request, type_: type[T], query: Collection[str] = ()) -> T:
    """`read_body` where every field has a default: an empty body is `{}`. `query`: what may stand in the query."""
    for name in request.query.keys() - query:
        instead = meant(name, query, ALIKE)
        hint = f"send {instead}" if instead else "fields of a command stand in its body, as JSON"
        raise ClientError(name, UNREAD, hint)
    return _kept(request, await received(request, lambda written: convert(written, type_), empty=b"{}"))


def _kept(request: web.Request, body: T) -> T:
    if READ_BODY in request:
        request[READ_BODY] = body
    return body


def set_request_id(request: web.Request, made: str, rid: str | None) -> str:
    """Sets and returns the request's id. `made`: the id if the client names none.

    Several requests may send the same header, so its value alone is no id.
    """
    sent = request.headers.get(HEADER, "")
    known = _WORD.fullmatch(sent) is not None
    chosen = rid or (f"{made}:{sent}" if known else made)
    request[_KEY] = sent if known else chosen
    return chosen


def begin_trace(request: web.Request) -> TraceContext:
    """Of a request that has just come: what its headers name, or a new trace that nobody samples."""
    span_id, trace = f"{random.getrandbits(64) or 1:016x}", None
    if parents := request.headers.getall("traceparent", []):
        trace = read(parents, request.headers.getall("tracestate", []), span_id)
    return set_trace(request, trace or TraceContext(f"{random.getrandbits(128) or 1:032x}", span_id))


def set_trace(request: web.Request, trace: TraceContext) -> TraceContext:
    """What its response says, and what is known to whatever it calls."""
    request[_TRACE] = trace
    CURRENT.set(trace)
    return trace


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Called as the headers of a response go out."""
    if _KEY not in request:
        set_request_id(request, made_id(), None)
    response.headers.update(id_headers(request[_KEY]))
    if (trace := request.get(_TRACE)) is not None:  # aiohttp's own refusals have none
        response.headers["traceparent"] = f"00-{trace.trace_id}-{trace.span_id}-{trace.flags:02x}"
        if trace.state:
            response.headers["tracestate"] = trace.state


def request_id(request: web.Request) -> str:
    """Of one that is answered; empty: none was made, for its client went away before."""
    known: str = request.get(_KEY, "")
    return known


def made_id() -> str:
    """For a request whose handler made none."""
    return f"req-{prompts.new_id()}"


def id_headers(request_id: str) -> dict[str, str]:
    return dict.fromkeys((HEADER, ANTHROPIC_HEADER), quote(request_id, safe=PRINTABLE))


def respond(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=encode(body), status=status, headers=headers, content_type="application/json")


async def respond_in_turn(request: web.Request, body: Any) -> web.StreamResponse:
    """`respond` for a body with long lists: what is larger than MAX_TURN is made and sent piece by piece."""
    pieces, begun, size = pieces_of(body), list[bytes](), 0
    for num, piece in enumerate(pieces, 1):
        begun.append(piece)
        size += len(piece)
        if size > MAX_TURN:
            break
        if num % MAX_PIECES == 0:
            await asyncio.sleep(0)
    else:
        return web.Response(body=b"".join(begun), content_type="application/json")
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    try:
        await write_in_turn(response, chain(begun, pieces))
    except ConnectionError:
        raise
    except Exception:  # noqa: BLE001  the status has gone out: only a reply without its end says that it failed
        LOGGER.exception("%s failed within its reply", request.path)
        if request.transport is not None:
            request.transport.close()
    else:
        await response.write_eof()
    return response


async def write_in_turn(response: web.StreamResponse, pieces: Iterable[bytes]) -> None:
    """Others are served after every MAX_TURN bytes, and after MAX_PIECES pieces of fewer bytes."""
    some, size = list[bytes](), 0
    for num, piece in enumerate(pieces, 1):
        some.append(piece)
        size += len(piece)
        if size >= MAX_TURN:
            await response.write(b"".join(some))
            await asyncio.sleep(0)
            some, size = [], 0
        elif num % MAX_PIECES == 0:
            await asyncio.sleep(0)
    if some:
        await response.write(b"".join(some))


def pieces_of(body: Any) -> Iterator[bytes]:
    """A body's JSON; entries of its long lists are made as their piece is reached."""
    return _filled(*_encoded(body))


def _encoded(body: Any) -> tuple[bytes, "list[LongList | LongJson]"]:
    """Its JSON with a hole for each long list, and these in order."""
    longs: list[LongList | LongJson] = []

    def leave_out(value: Any) -> Any:
        longs.append(value)
        return msgspec.Raw(_HOLE)

    return msgspec.json.Encoder(enc_hook=leave_out, decimal_format="number").encode(body), longs


def _filled(encoded: bytes, longs: "list[LongList | LongJson]") -> Iterator[bytes]:
    head, *tails = encoded.split(_HOLE)
    yield head
    for long, tail in zip(longs, tails, strict=True):
        yield from long.pieces if isinstance(long, LongJson) else _pieces_of_list(long)
        yield tail


def _pieces_of_list(long: LongList) -> Iterator[bytes]:
    before = b"["
    for part in long.parts:
        yield before
        if isinstance(part, LongList):
            yield from _pieces_of_list(part)
        else:
            encoded, longs = _encoded(part)
            yield from _filled(encoded[1:-1], longs)
        before = b","
    yield b"]" if before == b"," else b"[]"


class LongJson:
    """A value of a struct whose JSON is made in pieces by others."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces = pieces


def written(encoded: bytes) -> Any:
    """A value of a struct that is encoded already."""
    return msgspec.Raw(encoded)
