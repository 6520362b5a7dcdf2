"""/pause_generation and /continue_generation: what clients of a paused server see, and what an operator is told."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from ramet.ipc.control import PauseGeneration
from ramet.ipc.messages import Abort, Generate
from tests.fakes.engine import LIMITS
from tests.fakes.server import Served, served

PAUSE, CONTINUE = "/pause_generation", "/continue_generation"
Ask = tuple[str, dict[str, Any]]
BODY = {"text": "a", "sampling_params": {"max_new_tokens": 2}}
PAUSED = {"message": "Generation paused successfully.", "status": "ok"}
CONTINUED = {"message": "Generation continued successfully.", "status": "ok"}


@pytest.mark.parametrize("mode", ["in_place", "retract", "abort"])
def test_a_request_of_a_paused_server_waits_until_it_goes_on(mode: str) -> None:
    async def check(server: Served) -> None:
        assert await server.post(PAUSE, {"mode": mode}) == (200, PAUSED)
        waiting = asyncio.create_task(server.post("/generate", BODY))
        await server.engine.saw(Generate)
        assert (await server.get("/health"))[0] == 200
        assert not waiting.done()
        assert await server.post(CONTINUE, {}) == (200, CONTINUED)
        status, reply = await waiting
        assert status == 200 and reply["meta_info"]["finish_reason"]["type"] == "length"

    served(check)


def test_a_paused_server_is_not_ready_and_says_why() -> None:
    async def check(server: Served) -> None:
        await server.post(PAUSE, {"mode": "in_place"})
        for path in ("/ready", "/health_generate"):
            status, reply = await server.get(path)
            assert status == 503 and "/continue_generation" in reply["error"]["message"]
        await server.post(CONTINUE, {})
        assert (await server.get("/ready"))[0] == (await server.get("/health_generate"))[0] == 200

    served(check)


def test_without_a_mode_all_requests_end_before_the_reply_comes() -> None:
    async def check(server: Served) -> None:
        running = asyncio.create_task(server.post("/generate", BODY))
        await server.engine.saw(Generate)
        pausing = asyncio.create_task(server.post(PAUSE, {}))
        (abort,) = await server.engine.saw(Abort)
        await server.engine.saw(PauseGeneration)
        assert (await server.get("/ready"))[0] == 503 and not pausing.done()
        server.engine.abort(abort.uids, abort.message)
        assert await pausing == (200, PAUSED)
        status, reply = await running
        assert status == 200
        assert reply["meta_info"]["finish_reason"] == {
            "type": "abort", "message": "aborted by /pause_generation", "status_code": None, "err_type": "AbortError",
        }  # fmt: skip

    served(check, auto=False)


@pytest.mark.parametrize(("mode", "retract"), [("retract", True), ("in_place", False)])
def test_other_modes_end_nothing(mode: str, retract: bool) -> None:
    async def check(server: Served) -> None:
        running = asyncio.create_task(server.post("/generate", BODY))
        await server.engine.saw(Generate)
        assert (await server.post(PAUSE, {"mode": mode}))[0] == 200
        (asked,) = server.engine.of_type(PauseGeneration)
        assert asked.retract is retract and not server.engine.of_type(Abort)
        server.engine.step()
        server.engine.step()
        assert (await running)[1]["meta_info"]["completion_tokens"] == 2

    served(check, auto=False)


def test_requests_that_wait_count_in_the_queue_and_keep_their_deadline() -> None:
    async def check(server: Served) -> None:
        await server.post(PAUSE, {"mode": "in_place"})
        waiting = asyncio.create_task(server.post("/generate", {"text": "a", "sampling_params": {"n": 2}}))
        await server.engine.saw(Generate)
        status, reply = await server.post("/generate", BODY)
        assert status == 503 and "queue" in reply["error"]["message"]
        assert (await waiting)[0] == 504

    served(check, max_queued_requests=1, request_timeout_s=0.3, limits=replace(LIMITS, max_running_requests=1))


@pytest.mark.parametrize(
    ("holds", "goes_on"),
    [
        ((PAUSE, {"mode": "in_place"}), (CONTINUE, {})),
        (("/release_memory_occupation", {"tags": ["kv_cache"]}), ("/resume_memory_occupation", {})),
    ],
)
def test_a_server_that_computes_nothing_has_no_free_rows(holds: Ask, goes_on: Ask) -> None:
    async def check(server: Served) -> None:
        assert (await server.post(*holds))[0] == 200
        waiting = [asyncio.create_task(server.post("/generate", BODY)) for _ in range(2)]
        await server.engine.saw(Generate, 2)
        status, reply = await server.post("/generate", BODY)
        assert status == 503 and reply["error"]["message"] == "The request queue is full."
        assert (await server.post(*goes_on))[0] == 200
        waiting += [asyncio.create_task(server.post("/generate", BODY)) for _ in range(4)]
        await server.engine.saw(Generate, 6)
        for each in waiting:
            each.cancel()

    served(check, auto=False, max_queued_requests=2, limits=replace(LIMITS, max_running_requests=4))


def test_a_second_pause_and_going_on_twice_are_answered() -> None:
    async def check(server: Served) -> None:
        for _ in range(2):
            assert await server.post(PAUSE, {"mode": "in_place"}) == (200, PAUSED)
        assert await server.post(CONTINUE, {"torch_empty_cache": True}) == (200, CONTINUED)
        assert await server.post(CONTINUE, {}) == (200, {"message": "Generation was not paused.", "status": "ok"})

    served(check)


def test_an_unknown_mode_is_refused() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(PAUSE, {"mode": "keep"})
        assert status == 400 and "mode is 'keep'" in reply["error"]["message"]
        assert (await server.get("/ready"))[0] == 200

    served(check)
