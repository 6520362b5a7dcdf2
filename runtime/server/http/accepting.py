"""Which connections a server accepts: as many as --max-connections allows, for which it has file descriptors.

At the limit, connections that have waited longest for a next request make room for new ones; where there are none, a
new one gets a 503. This module accepts, because neither event loop does it well when descriptors run out:
asyncio's logs a traceback for every place of the backlog each second, uvloop's closes what waits without a word.
"""

import asyncio
import errno
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any

from aiohttp import web

from ramet.runtime.config import ServeArgs
from ramet.runtime.errors import ServerError
from ramet.runtime.log import LOGGER
from ramet.runtime.metrics.table import Metrics
from ramet.runtime.server.http.certificates import Certificates
from ramet.runtime.server.http.connections import LINGER_S, Connection, Connections, Episode, closing_reply

MAX_CONNECTIONS = 16384  # by default; each takes some 30 KB
MAX_REFUSED = 64  # connections that are being refused at once; further ones are closed without a reply
RESERVED_FILES = MAX_REFUSED + 64  # descriptors for refusals, for sockets between processes and for the log
MIN_IDLE_S = 1.0  # a connection that waits for less may have its next request on the way
MADE_ROOM = 32  # connections closed at once, so that not every new one looks through all
RETRY_S = 0.05  # until accepting is tried again
AT_ONCE = 64  # connections that are accepted before others are served
CLOSE_S = 30.0  # for a client to take the end of a TLS connection, behind what it has still to read
UNSENT_BYTES = 128 << 10  # that the kernel takes beyond what is on the way; without it, megabytes for who does not read
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
UNLIMITED = 1 << 20


def raise_descriptor_limit() -> int:
    """Raise this process's soft limit of open files to its hard one. Returns the limit that holds."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS refuses a hard limit that is not finite
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def allowed_connections(serve: ServeArgs, file_limit: int) -> int:
    """--max-connections, or less if the limit of open files leaves less; logs which."""
    left = max(1, file_limit - len(os.listdir("/dev/fd")) - RESERVED_FILES)
    wanted = serve.max_connections or MAX_CONNECTIONS
    if wanted > left:
        line = "At most %d connections at once, not %d: the limit of open files is %d (ulimit -n, LimitNOFILE=)"
        LOGGER.warning(line, left, wanted, file_limit)
    else:
        LOGGER.info("At most %d connections at once; the limit of open files is %d", wanted, file_limit)
    return min(wanted, left)


@asynccontextmanager
async def accepting(
    server: web.Server,
    listener: socket.socket,
    args: ServeArgs,
    metrics: Metrics,
    certificates: Certificates | None = None,
) -> AsyncIterator[None]:
    """Connections are accepted within the block; those that are open at its end stay so."""
    listener.setblocking(False)
    _bound_the_kernel(listener, args.transfer_timeout_s)
    acceptor = Acceptor(Connections(server, args, metrics), listener, certificates)
    acceptor.start()
    try:
        with certificates.following() if certificates and args.enable_ssl_refresh else nullcontext():
            yield
    finally:
        await acceptor.stop()
        listener.close()


def _bound_the_kernel(listener: socket.socket, timeout_s: float) -> None:
    """What the kernel holds of a reply that is not read, and for how long. Accepted connections inherit it."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # holds for closed ones that still send as well
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(min(timeout_s, 86400) * 1000))


class Acceptor:
    """Whatever one connection does, the next is accepted."""

    def __init__(
        self, connections: Connections, listener: socket.socket, certificates: Certificates | None = None
    ) -> None:
        self._connections, self._listener, self._certificates = connections, listener, certificates
        self._max_open = connections.args.max_connections or MAX_CONNECTIONS
        self._refusals: set[ConnectionRefusal] = set()
        self._full, self._no_files, self._no_tls = Episode(), Episode(), Episode()
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._loop.add_reader(self._listener, self._accept_waiting)

    async def stop(self) -> None:
        """Those that are open by then stay so."""
        self._loop.remove_reader(self._listener)
        if self._retry is not None:
            self._retry.cancel()
        if self._certificates is not None:  # a handshake may take --header-timeout-s
            for task in self._beginning:
                task.cancel()
        await asyncio.gather(*self._beginning, return_exceptions=True)

    def _accept_waiting(self) -> None:
        """AT_ONCE connections at most: then others are served."""
        try:
            for _ in range(AT_ONCE):
                self._begin(self._listener.accept()[0])
        except OSError as error:  # most often that none is left; or a client has gone already
            if error.errno in OUT_OF_RESOURCES:
                self._out_of_files(error)
                self._pause()
        except Exception:  # noqa: BLE001  a bug: this connection is lost, not the server
            LOGGER.exception("a connection could not be accepted")
            self._pause()

    def _pause(self) -> None:
        self._loop.remove_reader(self._listener)
        self._retry = self._loop.call_later(RETRY_S, self.start)

    def _begin(self, accepted: socket.socket) -> None:
        if len(self._connections.open) < self._max_open or self._make_room():
            task = self._loop.create_task(self._open(accepted, Connection(self._connections), self._connections.open))
        elif len(self._refusals) < MAX_REFUSED:
            task = self._loop.create_task(self._open(accepted, self._refusal(), self._refusals))
        else:
            accepted.close()
            return
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _open(self, accepted: socket.socket, protocol: asyncio.Protocol, among: set[Any]) -> None:
        accepted.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, accepted, **self._tls())
        except asyncio.CancelledError:
            accepted.close()
            among.discard(protocol)
            raise
        except Exception as error:  # noqa: BLE001  most often the client has gone already
            accepted.close()
            among.discard(protocol)
            if isinstance(error, ssl.SSLError):
                line = "A client's TLS handshake failed: %s (HTTP_REQUEST: it speaks plain HTTP)"
                self._no_tls.note(self._loop.time(), line, error.reason)
            elif not isinstance(error, OSError):  # a bug: this connection is lost, not the server
                LOGGER.exception("a connection could not be opened")

    def _tls(self) -> dict[str, Any]:
        """Of the next connection; a handshake may take as long as a header."""
        if self._certificates is None:
            return {}
        args = self._connections.args
        ends = min(args.transfer_timeout_s, CLOSE_S)
        times = {"ssl_handshake_timeout": args.header_timeout_s, "ssl_shutdown_timeout": ends}
        return {"ssl": self._certificates.context, **times}

    def _refusal(self) -> "ConnectionRefusal":
        line = "%d connections are open and none is idle (--max-connections): new ones get a 503"
        self._full.note(self._loop.time(), line, len(self._connections.open))
        self._connections.count(503)
        return ConnectionRefusal(self._refusals)

    def _out_of_files(self, error: OSError) -> None:
        line = "No connection can be accepted: %s. New ones wait until a file is closed; raise the limit of open files"
        self._no_files.note(self._loop.time(), line + " (ulimit -n, LimitNOFILE=)", os.strerror(error.errno or 0))
        self._make_room()

    def _make_room(self) -> bool:
        """Close those that have been idle for longest. Returns whether there was one."""
        before = self._loop.time() - MIN_IDLE_S
        idle = [(since, each) for each in self._connections.open if (since := each.idle_since) is not None]
        longest = sorted((pair for pair in idle if pair[0] < before), key=lambda pair: pair[0])[:MADE_ROOM]
        for _, connection in longest:
            self._connections.open.discard(connection)
            connection.force_close()
        return bool(longest)


class ConnectionRefusal(asyncio.Protocol):
    """A connection that gets a 503 for whatever it asks."""

    def __init__(self, all_: "set[ConnectionRefusal]") -> None:
        self._all = all_
        self._all.add(self)  # it counts before it is connected
        self._transport: Any  # uvloop's is no asyncio.Transport
        self._answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._end = asyncio.get_running_loop().call_later(LINGER_S, self._close)

    def data_received(self, data: bytes) -> None:
        """What comes after the first bytes is dropped: to close while the client sends would destroy the reply."""
        if not self._answered:
            self._answered = True
            fact = "The server has as many connections as it takes (--max-connections)."
            self._transport.write(closing_reply(ServerError(fact, 503)))
            if self._transport.can_write_eof():  # TLS has none
                self._transport.write_eof()

    def _close(self) -> None:
        self.data_received(b"")
        self._transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._all.discard(self)
        self._end.cancel()
