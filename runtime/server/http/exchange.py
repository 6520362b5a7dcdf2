"""One HTTP request and its reply: its body as JSON, the reply as JSON.

Every request belongs to a trace: the one that its headers name, or else one that is made here.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, TypeVar, cast

import msgspec
from aiohttp import web
from msgspec import Struct

from ramet.runtime import exact_json
from ramet.runtime.engine_client.trace_context import CURRENT, TraceContext, read
from ramet.runtime.errors import ClientError, RametError
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.misspelt import ALIKE, UNREAD, meant
from ramet.runtime.log import LOGGER
from ramet.runtime.replies.long_list import LongList
from ramet.runtime.server.http.receiving import ReceivedBody, received, received_with_body
from ramet.runtime.server.http.request_id import RequestId, id_headers, id_of, made_id, set_request_id, shown_id

R = TypeVar("R")
T = TypeVar("T", bound=Struct)
READ_BODY: web.RequestKey[Struct | None] = web.RequestKey("read_body", Struct)  # there where the body is to be kept
_TRACE = web.RequestKey("trace", TraceContext)

encode = exact_json.encode
MAX_PIECES = 8  # of a reply that are made before others are served: four parts of a long list
MAX_TURN = 1 << 16  # bytes of a reply that are made and written before others are served
_HOLE = b"\0"  # stands in no JSON, which escapes it


async def read_object(request: web.Request, read: Callable[[RequestId, dict[str, Any]], R]) -> R:
    """What `read` makes of the body as a JSON object. It may name the request.

    A large body takes long: other requests are served meanwhile, and `read` is called in another process. Raises what
    `read` raises, and ClientError: 413 if the body is too large, 408 if it takes too long, else 400.
    """
    made, _ = await read_object_with_body(request, read)
    return made


async def read_object_with_body(
    request: web.Request, read: Callable[[RequestId, dict[str, Any]], R]
) -> tuple[R, ReceivedBody]:
    """As `read_object`, and the body, of which more may be made later."""
    request_id = id_of(request)
    (shown, made, refused), body = await received_with_body(request, partial(_read, read, request_id))
    request_id.shown = shown
    if refused is not None:
        raise refused
    return cast(R, made), body


def _read(
    read: Callable[[RequestId, dict[str, Any]], R], request_id: RequestId, written: dict[str, Any]
) -> tuple[str, R | None, RametError | None]:
    """The id that is shown, and what was read or why nothing was: a refusal has the id as well."""
    try:
        made = read(request_id, written)
    except RametError as error:
        return request_id.shown, None, error
    return request_id.shown, made, None


async def read_body(request: web.Request, type_: type[T]) -> T:
    """The body as a struct. Raises as `read_object`, also for a field of the wrong type."""
    return _kept(request, await received(request, partial(_converted, type_)))


def _converted(type_: type[T], written: dict[str, Any]) -> T:
    return convert(written, type_)


async def read_command(request: web.Request, type_: type[T], query: Collection[str] = ()) -> T:
    """`read_body` where every field has a default: an empty body is `{}`. `query`: what may stand in the query."""
    for name in request.query.keys() - query:
        instead = meant(name, query, ALIKE)
        hint = f"send {instead}" if instead else "fields of a command stand in its body, as JSON"
        raise ClientError(name, UNREAD, hint)
    return _kept(request, await received(request, partial(_converted, type_), empty=b"{}"))


def _kept(request: web.Request, body: T) -> T:
    if READ_BODY in request:
        request[READ_BODY] = body
    return body


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
    if not shown_id(request):
        set_request_id(request, made_id(), None)
    response.headers.update(id_headers(shown_id(request)))
    if (trace := request.get(_TRACE)) is not None:  # aiohttp's own refusals have none
        response.headers["traceparent"] = f"00-{trace.trace_id}-{trace.span_id}-{trace.flags:02x}"
        if trace.state:
            response.headers["tracestate"] = trace.state


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
