"""/generate: shapes of replies, batches, samples, streams."""

import asyncio
from typing import Any

import pytest

from ramet.ipc.messages import Closed, Finish, FinishKind, Generate, TokenStep, unpack_ids
from ramet.ipc.params import SamplingParams
from tests.fakes.engine import CACHED, text_of, token_at
from tests.fakes.server import Served, served


def test_one_prompt_gets_one_reply() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(
            "/generate", {"text": "abc", "rid": "r1", "sampling_params": {"max_new_tokens": 5}}
        )
        assert status == 200
        assert reply["text"] == text_of(1, 5)
        assert reply["output_ids"] == [token_at(1, i) for i in range(5)]
        meta = reply["meta_info"]
        assert meta.pop("e2e_latency") > 0
        assert meta == {
            "id": "r1",
            "finish_reason": {"type": "length", "length": 5},
            "prompt_tokens": 3,
            "completion_tokens": 5,
            "cached_tokens": CACHED,
            "num_retractions": 0,
            "weight_version": "default",
        }

    served(check)


def test_put_is_post() -> None:
    async def check(server: Served) -> None:
        async with server.http.put("/generate", json={"text": "abc"}) as response:
            assert response.status == 200

    served(check)


def test_input_ids_reach_the_engine_packed() -> None:
    async def check(server: Served) -> None:
        await server.post("/generate", {"input_ids": [5, 6, 511]})
        await server.post("/generate", {"input_ids": [[1], [2, 3]]})
        sent = server.engine.of_type(Generate)
        assert [unpack_ids(m.content.ids) for m in sent] == [[5, 6, 511], [1], [2, 3]]
        assert all(m.content.text is None and m.arrival_s > 0 for m in sent)

    served(check)


@pytest.mark.parametrize("value, leases", [
    (None, [None, None]), (5, [5.0, 5.0]), (0, [0.0, 0.0]), ([2.5, None], [2.5, None]),
])  # fmt: skip
def test_a_lease_is_asked_for_all_prompts_or_for_each(value: Any, leases: list[float | None]) -> None:
    async def check(server: Served) -> None:
        await server.post("/generate", {"text": ["a", "b"], "prefix_lease_s": value})
        assert [message.spec.prefix_lease_s for message in server.engine.of_type(Generate)] == leases

    served(check)


def test_batch_replies_in_order_with_its_own_parameters() -> None:
    async def check(server: Served) -> None:
        body = {
            "text": ["a", "bb"],
            "rid": ["x", "y"],
            "sampling_params": [{"max_new_tokens": 2}, {"max_new_tokens": 4}],
        }
        _, replies = await server.post("/generate", body)
        assert [r["text"] for r in replies] == [text_of(1, 2), text_of(2, 4)]
        assert [r["meta_info"]["id"] for r in replies] == ["x", "y"]
        assert [r["meta_info"]["prompt_tokens"] for r in replies] == [1, 2]

    served(check)


def test_samples_come_flat_and_prompt_major() -> None:
    async def check(server: Served) -> None:
        body = {"text": ["a", "bb"], "sampling_params": {"n": 3, "max_new_tokens": 1}}
        _, replies = await server.post("/generate", body)
        assert [r["meta_info"]["prompt_tokens"] for r in replies] == [1, 1, 1, 2, 2, 2]
        assert [m.uids for m in server.engine.of_type(Generate)] == [[1, 2, 3], [4, 5, 6]]

    served(check)


def test_several_samples_of_a_single_prompt_are_a_list() -> None:
    async def check(server: Served) -> None:
        _, replies = await server.post("/generate", {"text": "a", "sampling_params": {"n": 2, "max_new_tokens": 1}})
        assert len(replies) == 2

    served(check)


def test_no_new_tokens_is_a_legal_request() -> None:
    async def check(server: Served) -> None:
        _, reply = await server.post("/generate", {"text": "abc", "sampling_params": {"max_new_tokens": 0}})
        assert reply["text"] == "" and reply["output_ids"] == []
        assert reply["meta_info"]["finish_reason"] == {"type": "length", "length": 0}

    served(check)


def test_parameters_are_completed_from_the_servers_defaults() -> None:
    async def check(server: Served) -> None:
        await server.post("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 1}})
        (sent,) = server.engine.of_type(Generate)
        assert sent.spec.params == SamplingParams(max_new_tokens=1, temperature=0.6, top_k=20)

    served(check, defaults=SamplingParams(temperature=0.6, top_k=20))


@pytest.mark.parametrize("body", [
    {"text": "abc"},
    {"text": ["a", "bb", "ccc"]},
    {"text": "abc", "sampling_params": {"n": 3}},
    {"input_ids": [[1], [2, 3]], "sampling_params": {"n": 2, "max_new_tokens": 7}},
    {"text": ["a"], "sampling_params": {"max_new_tokens": 0}},
])  # fmt: skip
@pytest.mark.parametrize("deltas", [False, True])
def test_stream_equals_whole(body: dict, deltas: bool) -> None:
    async def check(server: Served) -> None:
        _, whole = await server.post("/generate", body)
        whole = whole if isinstance(whole, list) else [whole]
        server.client._outbox._uids = iter(range(1, 1000))  # the formulas of the fake depend on the uid
        *events, done = await server.events("/generate", {**body, "stream": True})
        assert done == "[DONE]"
        texts, ids, last = [""] * len(whole), [[] for _ in whole], {}
        for event in events:
            i = event.get("index", 0)
            if not deltas:
                assert event["text"].startswith(texts[i]) and event["output_ids"][: len(ids[i])] == ids[i]
                texts[i], ids[i] = "", []
            texts[i] += event["text"]
            ids[i] += event["output_ids"]
            last[i] = event
        assert texts == [w["text"] for w in whole]
        assert ids == [w["output_ids"] for w in whole]
        for i, w in enumerate(whole):
            assert last[i]["meta_info"]["finish_reason"] == w["meta_info"]["finish_reason"]
            assert last[i]["meta_info"]["completion_tokens"] == w["meta_info"]["completion_tokens"]

    served(check, incremental_streaming_output=deltas)


def test_only_a_stream_of_several_carries_an_index() -> None:
    async def check(server: Served) -> None:
        single = await server.events("/generate", {"text": "a", "stream": True})
        several = await server.events("/generate", {"text": ["a"], "stream": True})
        assert all("index" not in e for e in single[:-1])
        assert all(e["index"] == 0 for e in several[:-1])

    served(check)


def test_midway_the_finish_reason_is_null_and_the_latency_comes_at_the_end_only() -> None:
    async def check(server: Served) -> None:
        *events, _ = await server.events(
            "/generate", {"text": "a", "stream": True, "sampling_params": {"max_new_tokens": 3}}
        )
        assert [e["meta_info"]["finish_reason"] is None for e in events] == [True, True, False]
        assert ["e2e_latency" in e["meta_info"] for e in events] == [False, False, True]

    served(check)


@pytest.mark.parametrize("finish, reason", [
    (Finish(FinishKind.STOP, matched=7, num_retractions=2), {"type": "stop", "matched": 7}),
    (Finish(FinishKind.STOP, matched="END"), {"type": "stop", "matched": "END"}),
    (Finish(FinishKind.LENGTH, length=1), {"type": "length", "length": 1}),
])  # fmt: skip
def test_every_ending_has_its_finish_reason(finish: Finish, reason: dict) -> None:
    async def check(server: Served) -> None:
        waiting = asyncio.create_task(server.post("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 9}}))
        await server.engine.saw(Generate)
        server.engine.step()
        server.engine.close(1, finish, "tail")
        _, reply = await waiting
        assert reply["meta_info"]["finish_reason"] == reason
        assert reply["meta_info"]["num_retractions"] == finish.num_retractions
        assert reply["text"].endswith("tail")

    served(check, auto=False)


def test_an_engines_own_abort_is_an_error_with_its_status() -> None:
    async def check(server: Served) -> None:
        for status in (400, 500, 503):
            waiting = asyncio.create_task(server.post("/generate", {"text": "a"}))
            (uid,) = (await server.engine.saw(Generate, 1 + len(server.engine.of_type(Generate))))[-1].uids
            server.engine.close(uid, Finish.abort("", "the logits were not finite", status=status))
            assert await waiting == (status, {"error": {"message": "the logits were not finite"}})

    served(check, auto=False)


def test_a_sequence_that_ends_in_the_step_that_opens_it_is_whole() -> None:
    async def check(server: Served) -> None:
        *events, _ = await server.events(
            "/generate", {"text": "a", "stream": True, "sampling_params": {"max_new_tokens": 1}}
        )
        (event,) = events
        assert event["text"] == text_of(1, 1) and event["meta_info"]["prompt_tokens"] == 1

    served(check)


def test_news_that_wait_for_a_busy_handler_leave_as_one_chunk() -> None:
    async def check(server: Served) -> None:
        reading = asyncio.create_task(
            server.events("/generate", {"text": "a", "stream": True, "sampling_params": {"max_new_tokens": 40}})
        )
        await server.engine.saw(Generate)
        for _ in range(40):  # no other task runs in between
            server.engine.step()
        *events, _ = await reading
        assert len(events) == 1 and events[0]["text"] == text_of(1, 40)

    served(check, auto=False)


def test_uids_are_never_reused() -> None:
    async def check(server: Served) -> None:
        for _ in range(3):
            await server.post(
                "/generate", {"text": "a", "rid": "same", "sampling_params": {"n": 2, "max_new_tokens": 1}}
            )
        uids = [uid for m in server.engine.of_type(Generate) for uid in m.uids]
        assert len(set(uids)) == 6 and server.client.num_open == 0

    served(check)


def test_a_step_may_close_one_sequence_and_go_on_with_another() -> None:
    async def check(server: Served) -> None:
        waiting = asyncio.create_task(
            server.post("/generate", {"text": ["a", "b"], "sampling_params": {"max_new_tokens": 2}})
        )
        await server.engine.saw(Generate, 2)
        server.engine.step([1, 2])
        server.engine.step([2])
        del server.engine.running[1]
        server.engine.tell(TokenStep([], b"", closed=[Closed(1, Finish(FinishKind.STOP, matched=3))], tails=[""]))
        _, (first, second) = await waiting
        assert first["output_ids"] == [token_at(1, 0)] and second["text"] == text_of(2, 2)

    served(check, auto=False)
