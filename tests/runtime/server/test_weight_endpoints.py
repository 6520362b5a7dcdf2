"""/update_weights_from_disk and /update_weight_version: what is answered, what waits, and what replies say of it."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import pytest

from ramet.ipc.control import ControlReply, HoldRequests, PlaceWeights, ReadWeights, ReleaseMemory
from ramet.ipc.messages import Abort, Generate
from ramet.runtime.engine_client.caller import Caller, for_caller
from ramet.runtime.errors import ClientError
from tests.fakes.server import Served, served

UPDATE, RENAME, PAUSE, INFO = (
    "/update_weights_from_disk", "/update_weight_version", "/pause_generation", "/get_model_info"
)  # fmt: skip
GENERATE = {"text": "a", "sampling_params": {"max_new_tokens": 2}}
BODY = {"model_path": "b", "weight_version": "2"}
DONE = {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 2}


def kinds(server: Served) -> list[type]:
    return [type(m) for _, m in server.engine.sent if isinstance(m, ReadWeights | HoldRequests | PlaceWeights)]


def test_weights_are_read_before_anything_waits_for_them() -> None:
    async def check(server: Served) -> None:
        assert await server.post(UPDATE, BODY) == (200, DONE)
        assert kinds(server) == [ReadWeights, HoldRequests, PlaceWeights, HoldRequests]
        assert server.engine.of_type(ReadWeights)[0].path == "b"
        first, last = server.engine.of_type(HoldRequests)
        assert first.after_s is not None and last.after_s is None

    served(check)


def test_the_model_says_which_weights_it_has() -> None:
    async def check(server: Served) -> None:
        assert (await server.get(INFO))[1]["weight_version"] == "default"
        await server.post(UPDATE, BODY)
        info = (await server.get(INFO))[1]
        assert (info["model_path"], info["served_model_name"], info["weight_version"]) == ("b", "b", "2")
        assert (await server.post(UPDATE, {"model_path": "c"}))[0] == 200
        info = (await server.get(INFO))[1]
        assert (info["model_path"], info["weight_version"]) == ("c", "c")
        for name in ("c", "ramet-bundled", "default"):  # clients may go on with the name of the start
            assert (await server.post("/v1/completions", {"prompt": "a", "model": name}))[0] == 200
        assert (await server.post("/v1/completions", {"prompt": "a", "model": "b"}))[0] == 404

    served(check)


def test_names_of_other_servers_metrics_follow_the_model() -> None:
    async def check(server: Served) -> None:
        await server.post(UPDATE, BODY)
        async with server.http.get("/metrics") as reply:
            text = await reply.text()
        assert 'model_name="b"' in text and 'model_name="ramet-bundled"' not in text

    served(check, metrics_compat=["vllm", "sglang"])


def test_no_path_is_a_400() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(UPDATE, {"model_path": ""})
        assert status == 400 and "model_path is ''" in reply["error"]["message"]
        assert not server.engine.sent

    served(check)


def test_a_name_that_was_given_stays() -> None:
    async def check(server: Served) -> None:
        await server.post(UPDATE, BODY)
        info = (await server.get(INFO))[1]
        assert (info["model_path"], info["served_model_name"]) == ("b", "mine")

    served(check, served_model_name="mine")


def test_what_cannot_be_read_is_a_400_that_says_why_and_changes_nothing() -> None:
    async def check(server: Served) -> None:
        server.engine.weights_error = "b has no config.json"
        status, reply = await server.post(UPDATE, BODY)
        message = "model_path is refused: b has no config.json"
        assert (status, reply) == (400, {"success": False, "message": message, "num_paused_requests": 0})
        assert kinds(server) == [ReadWeights]
        assert (await server.get(INFO))[1]["weight_version"] == "default"

    served(check)


def test_requests_that_came_before_end_first() -> None:
    async def check(server: Served) -> None:
        running = asyncio.create_task(server.post("/generate", GENERATE))
        await server.engine.saw(Generate)
        updating = asyncio.create_task(server.post(UPDATE, BODY))
        await server.engine.saw(HoldRequests)
        server.engine.step()
        assert not server.engine.of_type(PlaceWeights)
        server.engine.step()
        status, reply = await running
        assert status == 200 and reply["meta_info"]["weight_version"] == "default"
        assert (await updating)[0] == 200

    served(check, auto=False)


def test_a_client_that_goes_away_ends_an_update_that_waits_for_requests() -> None:
    async def check(server: Served) -> None:
        running = asyncio.create_task(server.post("/generate", GENERATE))
        await server.engine.saw(Generate)
        updating = asyncio.create_task(server.post(UPDATE, BODY))
        await server.engine.saw(HoldRequests)
        updating.cancel()
        await server.engine.saw(HoldRequests, 2)
        server.engine.step()
        server.engine.step()
        assert (await running)[0] == 200
        assert kinds(server) == [ReadWeights, HoldRequests, HoldRequests]
        assert (await server.get(INFO))[1]["weight_version"] == "default"

    served(check, auto=False)


def test_a_caller_that_goes_away_ends_what_waits_for_its_turn() -> None:
    async def check(server: Served) -> None:
        running = asyncio.create_task(server.post("/generate", GENERATE))
        await server.engine.saw(Generate)
        first = asyncio.create_task(server.post(UPDATE, BODY))
        await server.engine.saw(HoldRequests)
        later = [
            asyncio.create_task(change)
            for change in (server.client.admin.update_weights("c", None), server.client.admin.release_memory([]))
        ]
        for _ in range(5):  # until both wait
            await asyncio.sleep(0)
        for each in later:
            each.cancel()
        server.engine.step()
        server.engine.step()
        assert (await running)[0] == 200 and (await first)[0] == 200
        await asyncio.wait(later)
        assert [each.path for each in server.engine.of_type(ReadWeights)] == ["b"]
        assert not server.engine.of_type(ReleaseMemory)

    served(check, auto=False)


def test_what_the_engine_was_asked_goes_on_and_its_failure_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        asked, answered = asyncio.Event(), asyncio.Event()

        async def change(caller: Caller) -> None:
            async with caller.turn(asyncio.Lock()):
                asked.set()
                await answered.wait()
                raise ClientError("model_path", "is refused: it is cut off")

        tasks: list[asyncio.Future[None]] = []

        def begin(coroutine: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
            tasks.append(asyncio.ensure_future(coroutine))
            return tasks[-1]

        waiting = asyncio.create_task(for_caller(change, begin))
        await asked.wait()
        waiting.cancel()
        answered.set()
        await asyncio.wait([waiting, *tasks])
        assert waiting.cancelled() and not tasks[0].cancelled()

    asyncio.run(check())
    gc.collect()
    assert [record.getMessage() for record in caplog.records] == [
        "a change of the engine failed after its client had gone away: model_path is refused: it is cut off"
    ]


def test_a_caller_that_left_while_the_files_were_read_has_nobody_aborted() -> None:
    async def check(server: Served) -> None:
        running = asyncio.create_task(server.post("/generate", GENERATE))
        await server.engine.saw(Generate)
        server.engine.auto_answer = False
        updating = asyncio.create_task(server.client.admin.update_weights("b", None, abort_all=True))
        (read,) = await server.engine.saw(ReadWeights)
        updating.cancel()
        await asyncio.wait([updating])
        server.engine.tell(ControlReply(read.call, True))
        server.engine.step()
        server.engine.step()
        assert (await running)[1]["meta_info"]["finish_reason"]["type"] == "length"
        assert kinds(server) == [ReadWeights] and not server.engine.of_type(Abort)

    served(check, auto=False)


def test_they_are_aborted_where_that_is_asked() -> None:
    async def check(server: Served) -> None:
        running = asyncio.create_task(server.post("/generate", GENERATE))
        await server.engine.saw(Generate)
        updating = asyncio.create_task(server.post(UPDATE, {**BODY, "abort_all_requests": True}))
        (abort,) = await server.engine.saw(Abort)
        server.engine.abort(abort.uids, abort.message)
        assert (await running)[1]["meta_info"]["finish_reason"]["message"] == "aborted by /update_weights_from_disk"
        assert (await updating)[0] == 200

    served(check, auto=False)


def test_a_pause_ends_the_wait_and_replies_say_at_which_token_the_version_changed() -> None:
    async def check(server: Served) -> None:
        running = asyncio.create_task(server.post("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 3}}))
        await server.engine.saw(Generate)
        updating = asyncio.create_task(server.post(UPDATE, BODY))
        await server.engine.saw(HoldRequests)
        server.engine.step()
        assert (await server.post(PAUSE, {"mode": "in_place"}))[0] == 200
        assert await updating == (200, DONE)
        server.engine.step()
        server.engine.step()
        meta = (await running)[1]["meta_info"]
        assert meta["weight_version"] == "2"
        assert meta["weight_versions"] == [
            {"version": "default", "start": 0, "end": 1}, {"version": "2", "start": 1, "end": 3},
        ]  # fmt: skip

    served(check, auto=False)


TURNS = [{"role": "user", "content": "a"}]
REPLIES: list[tuple[str, dict[str, Any], tuple[str | int, ...]]] = [  # where each says which versions drew its tokens
    ("/v1/completions", {"prompt": "a", "max_tokens": 3}, ("choices", 0)),
    ("/v1/chat/completions", {"messages": TURNS, "max_tokens": 3}, ("choices", 0)),
    ("/v1/responses", {"input": "a", "max_output_tokens": 3}, ()),
    ("/v1/messages", {"model": "ramet-bundled", "messages": TURNS, "max_tokens": 3}, ()),
    ("/language/generate", {"prompt": ["a"], "sampling_params": {"max_new_tokens": 3}}, ("meta_info",)),
]


@pytest.mark.parametrize(("path", "body", "place"), REPLIES)
@pytest.mark.parametrize("changes", [True, False])
def test_every_surface_says_at_which_token_the_version_changed(
    path: str, body: dict[str, Any], place: tuple[str | int, ...], changes: bool
) -> None:
    async def check(server: Served) -> None:
        running = asyncio.create_task(server.post(path, body))
        await server.engine.saw(Generate)
        server.engine.step()
        assert (await server.post(PAUSE, {"mode": "in_place"}))[0] == 200
        if changes:
            assert await server.post(UPDATE, BODY) == (200, DONE)
        server.engine.step()
        server.engine.step()
        status, reply = await running
        assert status == 200
        for key in place:
            reply = reply[key]
        spans = [{"version": "default", "start": 0, "end": 1}, {"version": "2", "start": 1, "end": 3}]
        assert reply.get("weight_versions") == (spans if changes else None)

    served(check, auto=False)


def test_a_request_without_an_output_is_wholly_of_the_new_version() -> None:
    async def check(server: Served) -> None:
        await server.post(PAUSE, {"mode": "in_place"})
        running = asyncio.create_task(server.post("/generate", GENERATE))
        await server.engine.saw(Generate)
        await server.post(UPDATE, BODY)
        await server.post("/continue_generation", {})
        meta = (await running)[1]["meta_info"]
        assert meta["weight_version"] == "2" and "weight_versions" not in meta

    served(check)


def test_scores_that_would_be_of_two_versions_are_refused() -> None:
    async def check(server: Served) -> None:
        body = {"query": "a", "items": ["b", "c"], "label_token_ids": [1, 2]}
        running = asyncio.create_task(server.post("/v1/score", body))
        first, _ = await server.engine.saw(Generate, 2)
        server.engine.step(list(first.uids))
        await server.post(PAUSE, {"mode": "in_place"})
        await server.post(UPDATE, BODY)
        status, reply = await running
        assert status == 503 and "send it again" in reply["error"]["message"]

    served(check, auto=False)


def test_a_version_may_get_another_name() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(RENAME, {"new_version": "step 7"})
        assert (status, reply["success"], reply["new_version"]) == (200, True, "step 7")
        assert (await server.get(INFO))[1]["weight_version"] == "step 7"
        assert (await server.post("/generate", GENERATE))[1]["meta_info"]["weight_version"] == "step 7"

    served(check)


@pytest.mark.parametrize("field", [{"manifest": {"a": 1}}, {"recapture_cuda_graph": True}])
def test_what_is_not_built_is_refused_by_name(field: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(UPDATE, {**BODY, **field})
        assert status == 400 and next(iter(field)) in reply["error"]["message"]
        assert not server.engine.sent

    served(check)
