"""A server on loopback that speaks both dialects and streams what a test tells it to. Runs in a thread of its own."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

Events = list[Any]  # JSON objects, or bytes written as they are


def native_events(tokens: int, prompt_tokens: int = 5) -> Events:
    """Cumulative events of /generate, one per token; every token's text is "ab "."""
    return [
        {
            "text": "ab " * n,
            "output_ids": list(range(n)),
            "meta_info": {
                "id": "x", "prompt_tokens": prompt_tokens, "completion_tokens": n, "cached_tokens": 2,
                "finish_reason": {"type": "length", "length": n} if n == tokens else None,
            },
        }
        for n in range(1, tokens + 1)
    ]  # fmt: skip


def completion_events(tokens: int, prompt_tokens: int = 5) -> Events:
    """Deltas of /v1/completions, an event without text, then the usage."""
    deltas: Events = [{"choices": [{"index": 0, "text": "ab ", "finish_reason": None}]} for _ in range(tokens)]
    last = {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": tokens,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    return [*deltas, last, {"choices": [], "usage": usage}]


class FakeServer:
    """`answer(body, number)` gives the events of a request, or an int for an HTTP error of that status."""

    def __init__(self, answer: Callable[[dict[str, Any], int], Events | int], tokenizer: str) -> None:
        self.answer, self.tokenizer = answer, tokenizer
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.flushed = 0
        self.running = self.most_running = 0

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            events = self.answer(body, len(self.bodies) - 1)
            if isinstance(events, int):
                return web.json_response({"error": {"message": "no\nroom"}}, status=events)
            return await self._stream(request, events) if body["stream"] else web.json_response(events[-1])
        finally:
            self.running -= 1

    async def _stream(self, request: web.Request, events: Events) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            data = event if isinstance(event, bytes) else b"data: " + json.dumps(event).encode() + b"\n\n"
            await response.write(data)
            await asyncio.sleep(0)  # lets other streams in, so that the run is really concurrent
        await response.write(b"data: [DONE]\n\n")
        return response

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "tiny"}]})

    async def model_info(self, request: web.Request) -> web.Response:
        return web.json_response({"tokenizer_path": self.tokenizer})

    async def server_info(self, request: web.Request) -> web.Response:
        return web.json_response({"internal_states": [{}]})

    async def flush(self, request: web.Request) -> web.Response:
        self.flushed += 1
        return web.json_response({})

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/generate", self.generate),
            web.post("/v1/completions", self.generate),
            web.post("/flush_cache", self.flush),
            web.get("/v1/models", self.models),
            web.get("/get_model_info", self.model_info),
            web.get("/get_server_info", self.server_info),
        ]


@contextmanager
def serving(server: FakeServer) -> Iterator[int]:
    """Its port, while it runs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> tuple[web.AppRunner, int]:
        app = web.Application()
        app.add_routes(server.routes())
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner, runner.addresses[0][1]

    runner, port = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield port
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
