"""Ended requests leave no cycles for the garbage collector, which rarely runs in the server's process."""

import asyncio
import gc
from collections import Counter
from typing import Any

import pytest

from ramet.runtime.server import garbage
from tests.fakes.kept_memory import KeptMemory
from tests.fakes.server import Served, served

CHAT = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4}
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {}}}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 4}}),
    "chat": ("/v1/chat/completions", CHAT),
    "chat, streamed": ("/v1/chat/completions", {**CHAT, "stream": True}),
    "chat with tools": ("/v1/chat/completions", {**CHAT, "tools": [{"type": "function", "function": FUNCTION}]}),
    "messages": ("/v1/messages", {**CHAT, "stream": True}),
    "responses": ("/v1/responses", {"input": "a", "max_output_tokens": 4, "store": False}),
}
TIMES = 10


def ours() -> Counter[str]:
    """How many objects of ramet there are, by class; a class of another library may hold anything as its module."""
    kinds = (type(each) for each in gc.get_objects())
    return Counter(each.__qualname__ for each in kinds if str(each.__module__).startswith("ramet."))


@pytest.mark.parametrize("how", ASKED)
def test_a_request_that_ended_leaves_no_cycle(how: str) -> None:
    path, body = ASKED[how]

    async def check(server: Served) -> None:
        _, models = await server.get("/v1/models")
        for _ in range(TIMES):
            async with server.http.post(path, json={"model": models["data"][0]["id"], **body}) as response:
                assert response.status == 200, await response.text()
                await response.read()
        before = ours()
        gc.collect()
        left = before - ours()
        assert not [name for name, num in left.items() if num >= TIMES // 2], left

    gc.collect()
    gc.disable()
    try:
        served(check)
    finally:
        gc.enable()


def test_what_is_left_is_collected_now_and_then_and_its_memory_goes_back() -> None:
    class Circle:
        def __init__(self) -> None:
            self.itself, self.memory = self, memory

        def __del__(self) -> None:
            self.memory.free()

    def circles() -> int:
        return sum(isinstance(each, Circle) for each in gc.get_objects())

    async def check() -> None:
        collecting = asyncio.create_task(garbage.collect(every_s=0.01))
        Circle()
        before = KeptMemory.resident()
        assert circles() == 1
        while circles():
            await asyncio.sleep(0)
        assert memory.is_back(before)
        collecting.cancel()

    memory = KeptMemory()
    gc.disable()
    try:
        asyncio.run(asyncio.wait_for(check(), 120))
    finally:
        gc.enable()
