"""/release_memory_occupation and /resume_memory_occupation: what clients and operators see. And /slow_down."""

import asyncio
from typing import Any

import pytest

from ramet.ipc.control import MemoryTag, ReadWeights, ReleaseMemory, ResumeMemory, SlowDown
from ramet.ipc.messages import Generate
from ramet.runtime.server.process import _drained
from tests.fakes.server import Served, served

RELEASE, RESUME = "/release_memory_occupation", "/resume_memory_occupation"
BODY = {"text": "a", "sampling_params": {"max_new_tokens": 2}}
WEIGHTS, KV_CACHE, CUDA_GRAPH = MemoryTag


def test_a_request_waits_until_all_of_the_memory_is_resumed() -> None:
    async def check(server: Served) -> None:
        assert await server.post(RELEASE, {}) == (200, None)
        waiting = asyncio.create_task(server.post("/generate", BODY))
        await server.engine.saw(Generate)
        assert not waiting.done()
        assert await server.post(RESUME, {}) == (200, None)
        assert (await waiting)[0] == 200

    served(check)


def test_a_server_whose_memory_is_released_is_healthy_and_not_ready() -> None:
    async def check(server: Served) -> None:
        await server.post(RELEASE, {"tags": ["weights", "kv_cache"]})
        for tags in (["weights"], ["kv_cache"]):
            assert (await server.get("/health"))[0] == 200
            for path in ("/ready", "/health_generate"):
                status, reply = await server.get(path)
                assert status == 503 and RESUME in reply["error"]["message"]
            await server.post(RESUME, {"tags": tags})
        assert (await server.get("/ready"))[0] == (await server.get("/health_generate"))[0] == 200

    served(check)


@pytest.mark.parametrize(
    ("body", "tags"),
    [
        ({"tags": ["weights"]}, [WEIGHTS]),
        ({"tags": ["cuda_graph", "kv_cache"]}, [CUDA_GRAPH, KV_CACHE]),
        ({"tags": []}, [WEIGHTS, KV_CACHE, CUDA_GRAPH]),
        ({"tags": None}, [WEIGHTS, KV_CACHE, CUDA_GRAPH]),
        (b"", [WEIGHTS, KV_CACHE, CUDA_GRAPH]),
    ],
)
def test_no_tags_are_all_of_them(body: Any, tags: list[MemoryTag]) -> None:
    async def check(server: Served) -> None:
        for path, kind in ((RELEASE, ReleaseMemory), (RESUME, ResumeMemory)):
            assert await server.post(path, body) == (200, None)
            assert [each.tags for each in server.engine.of_type(kind)] == [tags]

    served(check)


@pytest.mark.parametrize("path", [RELEASE, RESUME])
def test_an_unknown_tag_is_refused(path: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(path, {"tags": ["weights", "memory"]})
        assert status == 400 and "tags[1]" in reply["error"]["message"] and "memory" in reply["error"]["message"]

    served(check)


def test_a_release_that_is_refused_says_why_and_changes_nothing() -> None:
    async def check(server: Served) -> None:
        server.engine.memory_error = "3 requests are running"
        status, reply = await server.post(RELEASE, {})
        assert status == 400 and "tags are refused: 3 requests are running" in reply["error"]["message"]
        assert (await server.get("/ready"))[0] == 200

    served(check)


def test_a_server_that_cannot_take_its_memory_again_is_not_ready_until_it_can() -> None:
    async def check(server: Served) -> None:
        await server.post(RELEASE, {})
        server.engine.memory_error = "there are no files"
        status, reply = await server.post(RESUME, {})
        assert status == 400 and "there are no files" in reply["error"]["message"]
        assert (await server.get("/ready"))[0] == 503
        server.engine.memory_error = ""
        assert (await server.post(RESUME, {}))[0] == (await server.get("/ready"))[0] == 200

    served(check)


def test_a_pause_and_a_release_end_each_by_itself() -> None:
    async def check(server: Served) -> None:
        await server.post("/pause_generation", {})
        await server.post(RELEASE, {})
        await server.post("/continue_generation", {})
        assert RESUME in (await server.get("/ready"))[1]["error"]["message"]
        await server.post("/pause_generation", {})
        await server.post(RESUME, {})
        assert "/continue_generation" in (await server.get("/ready"))[1]["error"]["message"]

    served(check)


def test_weights_are_not_updated_while_they_are_released() -> None:
    async def check(server: Served) -> None:
        await server.post(RELEASE, {"tags": ["weights"]})
        status, reply = await server.post("/update_weights_from_disk", {"model_path": "b"})
        assert status == 400 and RESUME in reply["message"] and not server.engine.of_type(ReadWeights)
        await server.post(RESUME, {})
        assert (await server.post("/update_weights_from_disk", {"model_path": "b"}))[0] == 200

    served(check)


def test_what_waits_when_the_server_is_asked_to_end_gets_its_output() -> None:
    async def check(server: Served) -> None:
        await server.post(RELEASE, {})
        waiting = asyncio.create_task(server.post("/generate", BODY))
        await server.engine.saw(Generate)
        await _drained(server.client)
        assert (await waiting)[0] == 200 and len(server.engine.of_type(ResumeMemory)) == 1

    served(check)


def test_what_waits_at_the_end_gets_an_error_where_the_memory_cannot_be_taken() -> None:
    async def check(server: Served) -> None:
        await server.post(RELEASE, {})
        waiting = asyncio.create_task(server.post("/generate", BODY))
        await server.engine.saw(Generate)
        server.engine.memory_error = "there are no files"
        await _drained(server.client)
        status, reply = await waiting
        assert status == 503 and "there are no files" in reply["error"]["message"]

    served(check)


def test_a_server_nobody_waits_for_ends_without_its_memory() -> None:
    async def check(server: Served) -> None:
        await server.post(RELEASE, {})
        await _drained(server.client)
        assert not server.engine.of_type(ResumeMemory)

    served(check)


@pytest.mark.parametrize(
    ("body", "sleep_s"), [({"forward_sleep_time": 0.5}, 0.5), ({"forward_sleep_time": None}, None)]
)
def test_slowing_down_reaches_the_scheduler(body: Any, sleep_s: float | None) -> None:
    async def check(server: Served) -> None:
        assert await server.post("/slow_down", body) == (200, None)
        assert [each.sleep_s for each in server.engine.of_type(SlowDown)] == [sleep_s]

    served(check)


@pytest.mark.parametrize("seconds", [-1, 60.5, "1"])
def test_seconds_out_of_range_are_refused(seconds: Any) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post("/slow_down", {"forward_sleep_time": seconds})
        assert status == 400 and "forward_sleep_time" in reply["error"]["message"]

    served(check)
