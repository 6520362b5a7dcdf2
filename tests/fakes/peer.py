"""Clients that speak bytes, and a server on a loop whose clock a test moves: for what happens below HTTP."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from tests.fakes.clock_loop import ClockLoop
from tests.fakes.server import Served, serving

HEADER_S, TRANSFER_S, KEEP_ALIVE_S = 20.0, 60.0, 60.0  # the defaults
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def on_clock(test: Callable[[Served], Awaitable[None]], loop: Any = ClockLoop, **options: Any) -> None:
    """Run a test's coroutine against a fresh server, on a loop of this kind."""

    async def main() -> None:
        async with serving(**options) as server:
            await test(server)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


class Peer:
    """A client that speaks bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self._writer = reader, writer

    @classmethod
    async def of(cls, server: Served, data: bytes = b"") -> "Peer":
        peer = cls(*await asyncio.open_connection("127.0.0.1", server.port))
        peer.send(data)
        return peer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def reply(self) -> tuple[int, dict[str, str], Any]:
        """The next reply: status, headers, JSON."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await self.reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers, json.loads(body)

    def stop_sending(self) -> None:
        self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()

    async def end(self) -> bytes:
        """What comes until the server closes."""
        rest = await self.reader.read()
        self._writer.close()
        return rest


async def turn(server: Served) -> None:
    """The server has read what was sent before."""
    peer = await Peer.of(server, HEALTH)
    assert (await peer.reply())[0] == 200
    await turn_loop()
    peer.close()


async def turn_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def half_body(path: str, length: int = 100) -> bytes:
    return b'POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n{"te' % (path.encode(), length)


async def is_open(peer: Peer) -> bool:
    await turn_loop()
    return not peer.reader.at_eof() and not peer.reader._buffer  # type: ignore[attr-defined]


def deaf(server: Served, data: bytes) -> socket.socket:
    """A client that sends a request and reads nothing."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.connect(("127.0.0.1", server.port))
    peer.sendall(data)
    return peer


def post(path: str, body: Any) -> bytes:
    data = orjson.dumps(body)
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data
