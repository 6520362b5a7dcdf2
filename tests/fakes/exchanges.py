"""A service that knows its conversation by heart: it compares each request with expected ones, and answers as written.

Requests come in any order, and each exchange is used once. A request that fits none is refused, and fails the test at
the end with what it has instead, as an exchange that was not used does.
"""

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Act = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Exchange:
    """`answer`: a value that is sent as JSON, `events(...)`, `raw(...)`, or any function of the request."""

    path: str
    body: Any
    answer: Any
    status: int = 200
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)  # that the request must have


def raw(text: str, status: int = 200, headers: dict[str, str] | None = None, kind: str = "text/html") -> Act:
    async def act(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, status=status, headers=headers, content_type=kind)

    return act


def events(*parts: Any, named: bool = False, end: str = "data: [DONE]\n\n") -> Act:
    """Server-sent events; `named`: each with its type, as Anthropic sends them."""
    lines = [(f"event: {part['type']}\n" if named else "") + f"data: {json.dumps(part)}\n\n" for part in parts]

    async def act(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for line in [*lines, end]:
            await response.write(line.encode())
        await response.write_eof()
        return response

    return act


def cut(*parts: Any) -> Act:
    """The connection is closed after these events."""

    async def act(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in parts:
            await response.write(f"data: {json.dumps(part)}\n\n".encode())
        assert request.transport is not None
        request.transport.abort()
        return response

    return act


async def closed(request: web.Request) -> web.StreamResponse:
    """The connection is closed without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def reset(request: web.Request) -> web.StreamResponse:
    """The connection is reset without an answer."""
    assert request.transport is not None
    linger = struct.pack("ii", 1, 0)  # what is closed is reset
    request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    request.transport.abort()
    return web.Response()


async def silent(request: web.Request) -> web.StreamResponse:
    """No answer comes, until whoever asks has gone."""
    await asyncio.get_running_loop().create_future()
    return web.Response()


class Service:
    """On loopback, on a thread of its own. `requests`: (path, body) of all that came."""

    def __init__(self, *exchanges: Exchange) -> None:
        self._left = list(exchanges)
        self.requests: list[tuple[str, Any]] = []
        self.faults: list[str] = []
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "Service":
        self._thread.start()
        assert self._started.wait(30)
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        if kind is None:
            assert not self.faults, "\n".join(self.faults)
            assert not self._left, f"these were not asked: {[(each.path, each.body) for each in self._left]}"

    def _serve(self) -> None:
        self._loop.run_until_complete(self._start())
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        body = json.loads(text) if text else None
        path = str(request.rel_url)
        self.requests.append((path, body))
        for exchange in self._left:
            if (exchange.method, exchange.path, exchange.body) == (request.method, path, body):
                break
        else:
            near = next((each.body for each in self._left if each.path == path), None)
            self.faults.append(f"{request.method} {path} has {json.dumps(body)}\n  expected: {json.dumps(near)}")
            return web.json_response({"error": {"message": "no such exchange"}}, status=422)
        self._left.remove(exchange)
        for name, value in exchange.headers.items():
            if request.headers.get(name) != value:
                self.faults.append(f"{path}: the header {name} is {request.headers.get(name)!r}, not {value!r}")
        if callable(exchange.answer):
            return await exchange.answer(request)
        return web.json_response(exchange.answer, status=exchange.status)
