"""A thousand chat streams at once and one after the other, a tenth of them cut off: nothing is lost, nothing hangs."""

import asyncio
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
import requests
from live import Live

STREAMS, AT_ONCE, CUT_EVERY = 1000, 64, 10
LIMIT_S = 240
QUESTIONS = (
    "What is the capital of France?",
    "Name a colour.",
    "What is 17 + 25?",
    "Say hello in one word.",
    "Count from one to ten.",
    "Who wrote this, and why? Think step by step.",
)
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@dataclass
class Stream:
    """What one client saw."""

    cut: bool
    reasons: list[str] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    done: bool = False
    error: Any = None
    chunks: int = 0


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live(random_seed=1) as live:
        yield live


def body(index: int) -> dict[str, Any]:
    draw = random.Random(index)
    asked: dict[str, Any] = {
        "messages": [{"role": "user", "content": draw.choice(QUESTIONS)}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": draw.randint(1, 24),
        "temperature": draw.choice([0, 0.7, 1.2]),
        "n": draw.choice([1, 1, 1, 2]),
    }
    if draw.random() < 0.3:
        asked["tools"] = [WEATHER]
        asked["messages"] = [{"role": "user", "content": f"How is the weather in city {index}?"}]
    if draw.random() < 0.2:
        asked |= {"logprobs": True, "top_logprobs": 2}
    return asked


async def follow(http: aiohttp.ClientSession, index: int, gate: asyncio.Semaphore) -> Stream:
    seen = Stream(cut=index % CUT_EVERY == 0)
    stop_after = random.Random(-index).randint(0, 6)
    async with gate, http.post("/v1/chat/completions", json=body(index)) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            if not line.startswith(b"data: "):
                continue
            if line == b"data: [DONE]\n":
                seen.done = True
                break
            event = json.loads(line[len(b"data: ") :])
            seen.chunks += 1
            seen.error = event.get("error", seen.error)
            seen.usage = event.get("usage") or seen.usage
            seen.reasons += [c["finish_reason"] for c in event.get("choices", ()) if c["finish_reason"]]
            if seen.cut and seen.chunks > stop_after:
                response.close()
                break
    return seen


async def follow_all(url: str) -> list[Stream]:
    gate = asyncio.Semaphore(AT_ONCE)
    connector = aiohttp.TCPConnector(limit=AT_ONCE)
    async with aiohttp.ClientSession(url, connector=connector) as http:
        return list(await asyncio.gather(*(follow(http, index, gate) for index in range(STREAMS))))


def total(metrics: str, name: str) -> float:
    return sum(float(line.split()[-1]) for line in metrics.splitlines() if line.startswith(name))


def test_a_thousand_streams_end_and_add_up(server: Live) -> None:
    streams = asyncio.run(asyncio.wait_for(follow_all(server.url), LIMIT_S))
    whole = [(index, stream) for index, stream in enumerate(streams) if not stream.cut]
    assert len(whole) == STREAMS - STREAMS // CUT_EVERY
    for index, stream in whole:
        asked = body(index)
        assert stream.done and stream.error is None
        assert len(stream.reasons) == asked["n"] and set(stream.reasons) <= {"stop", "length", "tool_calls"}
        assert stream.usage is not None
        usage = stream.usage
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert asked["n"] <= usage["completion_tokens"] <= asked["n"] * asked["max_completion_tokens"]
        assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]
        assert 0 <= usage["completion_tokens_details"]["reasoning_tokens"] <= usage["completion_tokens"]
    state = settled(server)
    assert state["running_requests"] == state["waiting_requests"] == 0
    assert len(server.children()) == 4, "a process died"
    counted = sum(stream.usage["completion_tokens"] for _, stream in whole if stream.usage is not None)
    generated = total(metrics_of(server), "ramet:generation_tokens_total")
    most_cut = sum(body(i)["n"] * body(i)["max_completion_tokens"] for i, stream in enumerate(streams) if stream.cut)
    assert counted <= generated <= counted + most_cut


def metrics_of(server: Live) -> str:
    return requests.get(server.url + "/metrics", timeout=10).text


def settled(server: Live) -> dict[str, Any]:
    """The scheduler's state, once what was cut off has ended: it is asked again and again, each time a step later."""
    for _ in range(200):
        state = server.state()
        if not state["running_requests"] and not state["waiting_requests"]:
            return state
    return state
