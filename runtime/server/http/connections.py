"""One client's connection: the deadlines of whatever it does, and JSON where aiohttp answers by itself.

    what the connection does                          ends after
    waits for its first request, or reads a header    --header-timeout-s, with a 408 if any byte of it came
    reads a body                                      transfer_time of what came, with a 408 (receiving.py)
    waits for the client to read                      transfer_time of what waits to be sent; without a word
                                                      (if it reads nothing, by the kernel: accepting.py)
    waits for its next request                        --keep-alive-timeout-s (aiohttp's own timer)
    runs a handler                                    --request-timeout-s

An end cancels the handler, which aborts its sequences. Which connections there may be is decided in accepting.py.

aiohttp has no public means for all of this. Of `web.RequestHandler` these are used as well: `_waiter` (a future while
it waits for a message from its parser), `_messages` (those that its parser made and no handler has), `_ErrInfo` (such a
message where the parser refused the bytes), `_current_request`, `_next_keepalive_close_time`.
"""

import asyncio
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.web_protocol import _ErrInfo

from ramet.ipc.errors import ClientError
from ramet.runtime.config import ServeArgs
from ramet.runtime.errors import RametError
from ramet.runtime.log import LOGGER
from ramet.runtime.metrics.table import Metrics
from ramet.runtime.server.http import problems
from ramet.runtime.server.http.freed_memory import FreedMemory
from ramet.runtime.server.http.receiving import transfer_time
from ramet.runtime.server.http.request_id import id_headers, made_id

MAX_TARGET = 8 << 10  # bytes of a request's path and query
MAX_HEADER = 16 << 10  # bytes of one header; another number than MAX_TARGET, by which errors are told apart
DROP_UNSENT = struct.pack("ii", 1, 0)  # the kernel forgets what it could not send; else it keeps that for minutes
LINGER_S = 1.0  # for a client to read a last reply while it still sends
QUIET_S = 10.0  # an episode is over when nothing of its kind happened for so long


@dataclass
class Episode:
    """A line of the log for what happens thousands of times."""

    last_s: float = float("-inf")

    def note(self, now_s: float, line: str, *values: object) -> None:
        """Log the line, if this is the first of an episode."""
        if now_s - self.last_s > QUIET_S:
            LOGGER.warning(line, *values)
        self.last_s = now_s


@dataclass
class Connections:
    """What all connections of a server have in common."""

    server: web.Server
    args: ServeArgs
    metrics: Metrics
    open: "set[Connection]" = field(default_factory=set)
    unread: Episode = field(default_factory=Episode)
    freed: FreedMemory = field(default_factory=FreedMemory)

    def count(self, status: int) -> None:
        """A reply that no handler made."""
        self.metrics.requests.add(1, "unknown", str(status))

    def note_unread(self) -> None:
        """A client that does not read its reply was disconnected."""
        line = "A client does not read its reply and is disconnected (--transfer-timeout-s %g)"
        self.unread.note(asyncio.get_running_loop().time(), line, self.args.transfer_timeout_s)


class Connection(web.RequestHandler):
    def __init__(self, all_: Connections) -> None:
        super().__init__(
            all_.server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=all_.args.keep_alive_timeout_s,
            auto_decompress=False,  # receiving.py inflates bodies, within bounds
            access_log=None,  # type: ignore[arg-type]  # so that none is written; web.AppRunner takes it as well
            max_line_size=MAX_TARGET,
            max_field_size=MAX_HEADER,
        )
        self._all = all_
        self._all.open.add(self)  # it counts before it is connected
        self._wire: Any = None  # the transport, also after aiohttp has closed it
        self._header: asyncio.TimerHandle | None = None  # of a header that is not whole
        self._begun = False  # a byte of that header came
        self._unread: asyncio.TimerHandle | None = None  # of bytes that the client does not read
        self._lingers = False  # the last reply was sent, and what still comes is dropped

    @property
    def idle_since(self) -> float | None:
        """When it began to wait for a request of which no byte has come. None: it does something else."""
        waits = self._waiter is not None and not self._waiter.done()
        begun = self._header is not None and self._begun
        return self._next_keepalive_close_time - self._keepalive_timeout if waits and not begun else None

    # -- what the transport calls -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = transport
        # `pause_writing` when the kernel takes no more, even while closing; TLS would pause at 0 with nothing to send
        self._wire.set_write_buffer_limits(high=0 if self._wire.get_extra_info("sslcontext") is None else 1)
        super().connection_made(transport)
        self._await_header()

    def data_received(self, data: bytes) -> None:
        if self._lingers:
            return
        num = len(self._messages)
        super().data_received(data)
        if len(self._messages) > num:
            self._cancel_header()
            if isinstance(refused := self._messages[-1][0], _ErrInfo):
                refused.exc.__traceback__ = None  # its frames hold this connection and these bytes
                self._end_bodies()
        elif data:
            if self._header is None and self.idle_since is not None:
                self._await_header()
            self._begun = True

    def pause_writing(self) -> None:
        super().pause_writing()
        within = transfer_time(self._all.args.transfer_timeout_s, self._wire.get_write_buffer_size())
        self._unread = self._loop.call_later(within, self._end_unread)

    def resume_writing(self) -> None:
        self._cancel_unread()
        super().resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._cancel_header()
        if self._unread is not None:
            self._all.freed.note()  # a reply that was not sent
        self._cancel_unread()
        self._all.open.discard(self)
        if isinstance(exc, TimeoutError):  # TCP_USER_TIMEOUT
            self._all.note_unread()
        super().connection_lost(exc)

    # -- ends -------------------------------------------------------------------------------------------------------

    def _await_header(self) -> None:
        self.keep_alive(True)  # stops aiohttp's timer of a connection that waits
        self._begun = False
        self._header = self._loop.call_later(self._all.args.header_timeout_s, self._end_header)

    def _cancel_header(self) -> None:
        if self._header is not None:
            self._header.cancel()
            self._header = None

    def _end_header(self) -> None:
        self._header = None
        if self._begun:
            fact = f"The request's header did not arrive within {self._all.args.header_timeout_s:g} s."
            self._wire.write(closing_reply(ClientError("", fact, "--header-timeout-s", 408)))
            self._all.count(408)
        self.force_close()

    def _end_bodies(self) -> None:
        """aiohttp forgets the body in which its parser failed, and whoever reads it would wait for ever."""
        bodies = [payload for _, payload in self._messages]
        if self._current_request is not None:
            bodies.append(self._current_request.content)
        for body in bodies:
            if not body.is_eof():
                body.set_exception(web.RequestPayloadError("it is not valid HTTP"))
                body.feed_eof()

    def _cancel_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _end_unread(self) -> None:
        self._all.note_unread()
        self._wire.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, DROP_UNSENT)
        self._wire.abort()

    async def linger(self) -> None:
        """Nothing more is sent. To close at once would destroy the reply if the client still sends."""
        self._lingers = True
        if self._wire.can_write_eof():  # TLS has none
            self._wire.write_eof()
        await asyncio.sleep(LINGER_S)  # cancelled when the client closes

    # -- replies that aiohttp makes ---------------------------------------------------------------------------------

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Bytes that are no request, or an exception outside of our handlers. Raises ConnectionError of a client that
        has gone: there is nobody to answer.
        """
        if isinstance(exc, ConnectionError):
            raise exc
        if not isinstance(exc, HttpProcessingError):
            LOGGER.error("%s %s failed", request.method, request.path, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a reply was begun, so that no other can be sent")
        error: RametError = problems.internal()
        if isinstance(exc, HttpProcessingError):
            error = refused_bytes(exc)
            LOGGER.info("%s got a %d: %s", request.remote, error.status, error)
        self._all.count(error.status)
        return LastReply(self, problems.reply_to(request.path, error))

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.HTTPException):  # of aiohttp's own: a target without a path, an Expect it does not know
            resp = problems.reply_to(request.path, ClientError("", f"{resp.reason}.", status=resp.status))
            self._all.count(resp.status)
        return await super().finish_response(request, resp, start_time)


class LastReply(web.Response):
    """A reply after which nothing more of the client is read."""

    def __init__(self, connection: Connection, reply: web.Response) -> None:
        super().__init__(body=reply.body, status=reply.status, headers=reply.headers)
        self.headers.update(id_headers(made_id()))
        self.force_close()
        self._connection = connection

    async def write_eof(self, data: bytes = b"") -> None:
        await super().write_eof(data)
        await self._connection.linger()


def refused_bytes(error: HttpProcessingError) -> ClientError:
    """What aiohttp's parser refused, as the client's error."""
    if isinstance(error, LineTooLong):
        if error.args[1] == MAX_TARGET:
            return ClientError("", f"The request's target is longer than {MAX_TARGET} bytes.", status=414)
        return ClientError("", f"A header of the request is longer than {MAX_HEADER} bytes.", status=431)
    fact = (error.message.strip().splitlines() or ["malformed"])[0].rstrip(":.")
    if fact.startswith("Too many headers"):
        return ClientError("", "The request has too many headers.", status=431)
    return ClientError("", f"The request is not valid HTTP: {fact[:200]}.")


def closing_reply(error: RametError) -> bytes:
    """A whole reply as bytes, for a connection without a request to answer."""
    reply = problems.reply_to("", error)
    assert isinstance(reply.body, bytes)
    headers = {**reply.headers, **id_headers(made_id()), "Connection": "close"}
    headers["Content-Length"] = str(len(reply.body))
    lines = [f"HTTP/1.1 {reply.status} {reply.reason}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + reply.body
