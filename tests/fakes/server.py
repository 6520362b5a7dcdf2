"""A real HTTP server on a free port of the loopback, in front of a FakeEngine."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from ramet.ipc.messages import Limits
from ramet.ipc.params import SamplingParams
from ramet.runtime.config import Args, make_args
from ramet.runtime.engine_client.client import EngineClient
from ramet.runtime.engine_client.media import MediaService
from ramet.runtime.intake.chat import Style
from ramet.runtime.metrics.table import Metrics
from ramet.runtime.server.http.accepting import accepting
from ramet.runtime.server.http.certificates import certificates_of
from ramet.runtime.server.http.response_store import ResponseStore
from ramet.runtime.server.http.service import Front, Service, Traces
from ramet.runtime.server.process import BACKLOG, make_runner
from ramet.runtime.text.labels import Labels
from ramet.runtime.text.pooling import Pooling
from tests.fakes.engine import LIMITS, FakeEngine


@dataclass
class Served:
    """What a test holds: the engine behind, the client inside, and a session in front."""

    engine: FakeEngine
    client: EngineClient
    http: aiohttp.ClientSession
    port: int

    async def post(self, path: str, body: Any, **options: Any) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        async with self.http.post(path, data=data, **options) as response:
            return response.status, orjson.loads(await response.read())

    async def get(self, path: str, **options: Any) -> tuple[int, Any]:
        async with self.http.get(path, **options) as response:
            return response.status, orjson.loads(await response.read())

    async def events(self, path: str, body: Any) -> list[Any]:
        """Every event of a stream, the last one being "[DONE]"."""
        async with self.http.post(path, data=orjson.dumps(body)) as response:
            assert response.status == 200, await response.text()
            return parse_events(await response.read())


def parse_events(data: bytes) -> list[Any]:
    assert data.endswith(b"\n\n")
    events = [event.removeprefix(b"data: ") for event in data.split(b"\n\n")[:-1]]
    return ["[DONE]" if event == b"[DONE]" else orjson.loads(event) for event in events]


@asynccontextmanager
async def serving(
    auto: bool = True,
    *,
    workers: int = 1,
    defaults: SamplingParams | None = None,
    limits: Limits = LIMITS,
    pooling: Pooling | None = None,
    labels: Labels = Labels(),
    style: Style = Style("hermes", "qwen3"),
    traces: Traces | None = None,
    media: MediaService | None = None,
    **options: Any,
) -> AsyncIterator[Served]:
    args: Args = make_args(**options)
    engine, metrics = FakeEngine(auto, workers), Metrics()
    client = EngineClient(engine.tokenizers, engine.scheduler, limits, metrics, args, media=media)
    engine.deliver = client.deliver
    started = 1_700_000_000
    store = ResponseStore(int(args.serve.stored_responses_mb * (1 << 20)), args.share_per_key)
    given = defaults or SamplingParams()
    parts = (args, client, metrics, given, started, pooling or Pooling(), labels, style, store)
    runner = make_runner(Front(args, metrics, Service(*parts, traces=traces)))
    await runner.setup()
    assert runner.server is not None
    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    port = listener.getsockname()[1]
    try:
        async with (
            accepting(runner.server, listener, args.serve, metrics, certificates_of(args.serve)),
            aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
        ):
            yield Served(engine, client, http, port)
    finally:
        await runner.cleanup()
        client.request_log.close()


def served(test: Callable[[Served], Awaitable[None]], *, timeout_s: float = 20, **options: Any) -> None:
    """Run a test's coroutine against a fresh server."""

    async def main() -> None:
        async with serving(**options) as server:
            await test(server)

    asyncio.run(asyncio.wait_for(main(), timeout_s))
