"""Ids: every sequence of a request has its own, and each of its names reaches what it names."""

import asyncio
from typing import Any

import orjson
import pytest

from ramet.ipc.messages import Abort, Generate
from tests.fakes.server import Served, served

ONE = {"max_new_tokens": 1}


def ids_of(reply: Any) -> list[str]:
    return [each["meta_info"]["id"] for each in (reply if isinstance(reply, list) else [reply])]


@pytest.mark.parametrize("body, ids", [
    ({"text": "a", "rid": "r"}, ["r"]),
    ({"text": "a", "rid": "r", "sampling_params": {**ONE, "n": 3}}, ["r-0", "r-1", "r-2"]),
    ({"text": ["a", "b"], "rid": "r"}, ["r-0", "r-1"]),
    ({"text": ["a", "b"], "rid": "r", "sampling_params": {**ONE, "n": 2}}, ["r-0-0", "r-0-1", "r-1-0", "r-1-1"]),
    ({"text": ["a", "b"], "rid": ["x", "y"], "sampling_params": [{"n": 2}, ONE]}, ["x-0", "x-1", "y"]),
])  # fmt: skip
def test_each_sample_has_an_id_of_its_own(body: dict[str, Any], ids: list[str]) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post("/generate", {"sampling_params": ONE, **body})
        assert status == 200 and ids_of(reply) == ids
        events = await server.events("/generate", {"sampling_params": ONE, **body, "stream": True})
        assert {event["meta_info"]["id"] for event in events[:-1]} == set(ids)

    served(check)


def test_ids_that_are_made_differ_too() -> None:
    async def check(server: Served) -> None:
        async with server.http.post("/generate", json={"text": ["a", "b"], "sampling_params": {"n": 2}}) as response:
            ids = ids_of(await response.json())
            name = response.headers["X-Request-Id"]
        assert ids == [f"{name}-0-0", f"{name}-0-1", f"{name}-1-0", f"{name}-1-1"]

    served(check)


@pytest.mark.parametrize("rid, uids", [
    ("r", [1, 2, 3, 4]), ("r-0", [1, 2]), ("r-1", [3, 4]), ("r-1-0", [3]), ("r-2", []), ("r-", []),
])  # fmt: skip
def test_a_name_reaches_its_request_its_prompt_or_its_sample(rid: str, uids: list[int]) -> None:
    async def check(server: Served) -> None:
        body = {"text": ["a", "b"], "rid": "r", "sampling_params": {"n": 2}}
        waiting = asyncio.create_task(server.post("/generate", body))
        await server.engine.saw(Generate, 2)
        status, reply = await server.get(f"/v1/requests/{rid}")
        assert status == (200 if uids else 404) and (not uids or len(reply["sequences"]) == len(uids))
        assert await server.post("/abort_request", {"rid": rid}) == (200, {"aborted": len(uids)})
        assert [uid for abort in server.engine.of_type(Abort) for uid in abort.uids] == uids
        waiting.cancel()

    served(check, auto=False)


def test_a_request_with_a_list_of_rids_has_a_name_for_all_of_them() -> None:
    async def check(server: Served) -> None:
        body = {"text": ["a", "b"], "rid": ["x", "y"], "stream": True}
        posting = asyncio.create_task(server.http.post("/generate", data=orjson.dumps(body)))
        await server.engine.saw(Generate, 2)
        server.engine.step()
        async with await posting as response:
            name = response.headers["X-Request-Id"]
            assert await server.post("/abort_request", {"rid": name}) == (200, {"aborted": 2})

    served(check, auto=False)


@pytest.mark.parametrize("rids, params, message", [
    (["a", "b", "c", "a"], {}, "rid[3] is 'a' and rid[0] is 'a'"),
    (["a", "b", "c", "a"], {"n": 2}, "rid[3] is 'a' and rid[0] is 'a'"),
    (["a", "b", "c", "b-1"], [{}, {"n": 2}, {}, {}], "rid[3] is 'b-1' and rid[1] is 'b', so that two sequences"),
])  # fmt: skip
def test_two_equal_ids_in_one_batch_are_refused_with_both_places(rids: list[str], params: Any, message: str) -> None:
    async def check(server: Served) -> None:
        body = {"text": ["a"] * 4, "rid": rids, "sampling_params": params}
        status, reply = await server.post("/generate", body)
        assert status == 400 and reply["error"]["message"].startswith(message) and server.engine.sent == []

    served(check)


def test_a_rid_that_is_refused_is_no_header() -> None:
    async def check(server: Served) -> None:
        async with server.http.post("/generate", json={"text": "a", "rid": "x" * 5000}) as response:
            assert response.status == 400 and len(response.headers["X-Request-Id"]) < 100

    served(check)
