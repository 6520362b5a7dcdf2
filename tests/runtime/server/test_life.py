"""Requests that end early: disconnects, aborts, full queues, deadlines, drains and deaths."""

import asyncio
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from ramet.ipc.content import Content
from ramet.ipc.control import Control
from ramet.ipc.messages import Abort, Drain, Finish, Generate, PeerDied, TokenStep
from ramet.runtime.engine_client.prompt import Prompt
from tests.fakes.engine import LIMITS
from tests.fakes.server import Served, parse_events, served
from tests.fakes.specs import make_spec

STREAMS = [("/generate", {"text": "a", "stream": True}), ("/v1/completions", {"prompt": "a", "stream": True})]

ONE_ROW = replace(LIMITS, max_running_requests=1)


def ask(server: Served, path: str = "/generate", **body: Any) -> "asyncio.Task[tuple[int, Any]]":
    return asyncio.create_task(server.post(path, {"text": "a", "prompt": "a", **body}))


@pytest.mark.parametrize("path, body", STREAMS)
def test_a_client_that_leaves_its_stream_aborts_it(path: str, body: dict) -> None:
    async def check(server: Served) -> None:
        posting = asyncio.create_task(server.http.post(path, data=orjson.dumps(body)))
        await server.engine.saw(Generate)
        server.engine.step()
        response = await posting
        await response.content.readany()
        response.close()
        (abort,) = await server.engine.saw(Abort)
        assert abort.uids == [1]

    served(check, auto=False)


def test_a_client_that_leaves_before_the_reply_aborts_every_sequence() -> None:
    async def check(server: Served) -> None:
        waiting = ask(server, text=["a", "b"], sampling_params={"n": 2})
        await server.engine.saw(Generate, 2)
        waiting.cancel()
        (abort,) = await server.engine.saw(Abort)
        assert sorted(abort.uids) == [1, 2, 3, 4]

    served(check, auto=False)


def test_an_abandoned_sequence_is_known_until_its_last_message_and_keeps_nothing() -> None:
    async def check(server: Served) -> None:
        waiting = ask(server)
        await server.engine.saw(Generate)
        sequence = next(iter(server.client._sequences.by_uid.values()))
        server.engine.step()
        waiting.cancel()
        await server.engine.saw(Abort)
        assert server.client.num_open == 1
        server.engine.step()
        assert sequence.texts is None and sequence.tokens == []
        server.engine.close(1, Finish.abort("", "gone", status=0))
        assert server.client.num_open == 0 and server.client.num_waiting == 0

    served(check, auto=False)


def test_an_abort_takes_the_way_of_its_prompt() -> None:
    async def check(server: Served) -> None:
        tasks = [ask(server) for _ in range(6)]
        await server.engine.saw(Generate, 6)
        for task in tasks:
            task.cancel()
        await server.engine.saw(Abort, 6)
        went = {uid: worker for worker, m in server.engine.sent if isinstance(m, Generate) for uid in m.uids}
        assert set(went.values()) == {0, 1, 2}
        for worker, message in server.engine.sent:
            if isinstance(message, Abort):
                assert all(went[uid] == worker for uid in message.uids)

    served(check, auto=False, workers=3)


def test_half_of_many_streams_leave_and_the_rest_finish_right() -> None:
    async def check(server: Served) -> None:
        body = {"prompt": "a", "stream": True, "max_tokens": 20}
        posts = [asyncio.create_task(server.http.post("/v1/completions", json=body)) for _ in range(60)]
        await server.engine.saw(Generate, 60)
        server.engine.step()
        responses = await asyncio.gather(*posts)
        for response in responses[::2]:
            response.close()
        await server.engine.saw(Abort, 30)
        for abort in server.engine.of_type(Abort):
            server.engine.abort(abort.uids, abort.message)
        for _ in range(19):
            server.engine.step()
        for response in responses[1::2]:
            *events, done = parse_events(await response.read())
            assert done == "[DONE]" and events[-1]["choices"][0]["finish_reason"] == "length"
            assert len(events) == 20
        assert server.client.num_open == server.client.num_waiting == 0

    served(check, auto=False)


def test_abort_request_is_exact_and_the_client_gets_what_came() -> None:
    async def check(server: Served) -> None:
        first, second = ask(server, rid="job-1"), ask(server, rid="job-10")
        await server.engine.saw(Generate, 2)
        server.engine.step()
        assert await server.post("/abort_request", {"rid": "job-1"}) == (200, {"aborted": 1})
        (abort,) = server.engine.of_type(Abort)
        server.engine.abort(abort.uids, abort.message)
        status, reply = await first
        assert status == 200 and len(reply["output_ids"]) == 1
        reason = reply["meta_info"]["finish_reason"]
        assert reason["type"] == "abort" and reason["status_code"] is None and "abort" in reason["message"]
        assert await server.post("/abort_request", {"rid": "job"}) == (200, {"aborted": 0})
        assert await server.post("/abort_request", {"abort_all": True}) == (200, {"aborted": 1})
        server.engine.abort(server.engine.of_type(Abort)[-1].uids, "all")
        assert (await second)[0] == 200

    served(check, auto=False)


@pytest.mark.parametrize("body", [{}, {"rid": ""}, {"rid": None}, {"abort_all": False}, {"rid": 5}, {"abort_all": "x"}])
def test_an_abort_of_nobody_is_a_400(body: dict) -> None:
    async def check(server: Served) -> None:
        waiting = ask(server)
        await server.engine.saw(Generate)
        status, _ = await server.post("/abort_request", body)
        assert status == 400 and server.engine.of_type(Abort) == []
        waiting.cancel()

    served(check, auto=False)


def test_an_aborted_completion_says_so() -> None:
    async def check(server: Served) -> None:
        waiting = ask(server, "/v1/completions", rid="x")
        await server.engine.saw(Generate)
        server.engine.close(1, Finish.abort("", "asked", status=0))
        status, reply = await waiting
        assert status == 200 and reply["choices"][0]["finish_reason"] == "abort"

    served(check, auto=False)


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
def test_a_full_queue_is_a_503_until_somebody_is_opened(path: str) -> None:
    async def check(server: Served) -> None:
        first = ask(server, sampling_params={"n": 3})  # finds an empty queue and enters whole
        await server.engine.saw(Generate)
        status, reply = await server.post(path, {"text": "a", "prompt": "a"})
        assert status == 503 and reply["error"]["message"] == "The request queue is full."
        assert len(server.engine.of_type(Generate)) == 1
        server.engine.step([1, 2])  # two of three are opened: one place is free
        second = ask(server)
        await server.engine.saw(Generate, 2)
        assert server.client.num_waiting == 2
        first.cancel(), second.cancel()

    served(check, auto=False, max_queued_requests=2, limits=ONE_ROW)


def test_a_batch_enters_the_queue_whole_or_not_at_all() -> None:
    async def check(server: Served) -> None:
        first = ask(server)
        await server.engine.saw(Generate)
        for many in ({"text": ["a"] * 3}, {"sampling_params": {"n": 3}}):  # four, of which one could run
            async with server.http.post("/generate", data=orjson.dumps({"text": "a", **many})) as response:
                reply = await response.json()
                assert response.status == 503 and response.headers["Retry-After"] == "1"
                assert reply["error"]["message"] == "The request queue is full."
        assert len(server.engine.of_type(Generate)) == 1 and server.client.num_waiting == 1
        second = ask(server, sampling_params={"n": 2})
        await server.engine.saw(Generate, 2)
        assert server.client.num_waiting == 3
        first.cancel(), second.cancel()

    served(check, auto=False, max_queued_requests=2, limits=ONE_ROW)


def test_alone_a_request_may_bring_as_many_more_as_run_at_once() -> None:
    async def check(server: Served) -> None:
        body = {"text": ["a"] * 7, "sampling_params": {"n": 1}}
        status, reply = await server.post("/generate", body)
        wanted = "text asks for 7 sequences (prompts times n), must be at most 6 (2 wait (--max-queued-requests)"
        assert status == 400 and reply["error"]["message"].startswith(wanted)
        assert server.engine.of_type(Generate) == [] and server.client.num_waiting == 0
        waiting = ask(server, text=["a"] * 6)
        await server.engine.saw(Generate, 6)
        assert server.client.num_waiting == 6
        waiting.cancel()

    served(check, auto=False, max_queued_requests=2, limits=replace(LIMITS, max_running_requests=4))


@pytest.mark.parametrize("n, place", [(3, "prompt"), (1, "messages")])
def test_every_surface_counts_its_samples(n: int, place: str) -> None:
    async def check(server: Served) -> None:
        chat = {"messages": [{"role": "user", "content": "a"}], "n": 3}
        path, body = (
            ("/v1/chat/completions", chat) if place == "messages" else ("/v1/completions", {"prompt": "a", "n": n})
        )
        status, reply = await server.post(path, body)
        assert status == 400 and reply["error"]["param"] == place and "asks for 3 seq" in reply["error"]["message"]
        assert server.engine.of_type(Generate) == []

    served(check, auto=False, max_queued_requests=1, limits=ONE_ROW)


def test_inputs_that_wait_for_their_turn_do_not_count() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post("/v1/embeddings", {"input": ["a"] * 500})
        assert status == 200 and len(reply["data"]) == 500

    served(check, max_queued_requests=1)


def test_places_in_the_queue_come_back() -> None:
    async def check(server: Served) -> None:
        for _ in range(5):
            assert (await server.post("/generate", {"text": "REJECT"}))[0] == 400
            assert (await server.post("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 0}}))[0] == 200
            assert (await server.post("/generate", {"text": "a"}))[0] == 200
        assert server.client.num_waiting == 0

    served(check, max_queued_requests=1)


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
def test_a_request_out_of_time_is_a_504_and_is_aborted(path: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(path, {"text": "a", "prompt": "a"})
        assert status == 504 and "0.05 s" in reply["error"]["message"]
        (abort,) = await server.engine.saw(Abort)
        assert abort.uids == [1]

    served(check, auto=False, request_timeout_s=0.05)


@pytest.mark.parametrize("path, body", STREAMS)
def test_a_stream_out_of_time_ends_with_an_error_event(path: str, body: dict) -> None:
    async def check(server: Served) -> None:
        reading = asyncio.create_task(server.events(path, body))
        await server.engine.saw(Generate)
        server.engine.step()
        *_, error, done = await reading
        assert done == "[DONE]" and error["error"]["retryable"] is True
        native = path == "/generate"
        assert error["error"]["code"] == (504 if native else "timeout")
        assert set(error["error"]) == {"message", "type", "code", "retryable"} | (set() if native else {"param"})

    served(check, auto=False, request_timeout_s=0.05)


def test_a_request_in_time_leaves_no_timer() -> None:
    async def check(server: Served) -> None:
        prompt = Prompt("r", make_spec(max_new_tokens=1), Content("a"))
        with server.client.submit([prompt], streaming=False) as submission:
            await submission.finished()
            assert submission.timer is not None and not submission.timer.cancelled()
        assert submission.timer.cancelled()
        assert server.engine.of_type(Abort) == []

    served(check, request_timeout_s=30)


@pytest.mark.parametrize("path, body", STREAMS)
def test_an_engines_abort_after_the_first_token_is_an_event(path: str, body: dict) -> None:
    async def check(server: Served) -> None:
        reading = asyncio.create_task(server.events(path, body))
        await server.engine.saw(Generate)
        server.engine.step()
        await server.get("/health")  # by its answer the handler has sent its first chunk
        server.engine.close(1, Finish.abort("", "the logits were not finite", status=500))
        *_, error, done = await reading
        assert done == "[DONE]" and error["error"]["message"] == "the logits were not finite"

    served(check, auto=False)


def test_draining_refuses_new_requests_and_finishes_the_running_ones() -> None:
    async def check(server: Served) -> None:
        running = ask(server, sampling_params={"max_new_tokens": 2})
        await server.engine.saw(Generate)
        assert (await server.get("/ready"))[0] == 200
        server.engine.tell(Drain(10.0))
        for path in ("/generate", "/v1/completions"):
            status, reply = await server.post(path, {"text": "a", "prompt": "a"})
            assert status == 503 and "shutting down" in reply["error"]["message"]
        assert (await server.get("/ready"))[0] == 503
        assert (await server.get("/health"))[0] == 200
        drained = asyncio.create_task(server.client.requests.none_left())
        server.engine.step()
        assert not drained.done()
        server.engine.step()
        assert (await running)[0] == 200
        await drained

    served(check, auto=False)


def test_every_client_gets_an_error_when_a_process_ends() -> None:
    async def check(server: Served) -> None:
        whole = ask(server, "/v1/completions")
        streams = [asyncio.create_task(server.events(path, body)) for path, body in STREAMS]
        await server.engine.saw(Generate, 3)
        server.engine.step()
        await server.get("/health")
        asking = asyncio.create_task(server.get("/v1/requests/none"))
        server.engine.tell(PeerDied("scheduler", -9))
        status, reply = await whole
        assert status == 503 and "scheduler" in reply["error"]["message"] and "-9" in reply["error"]["message"]
        for stream in streams:
            *_, error, done = await stream
            assert (
                done == "[DONE]"
                and error["error"]["code"] in (503, "server_overloaded", None)
                and error["error"]["retryable"]
            )
        assert (await asking)[0] == 404
        for path in ("/generate", "/v1/completions"):
            assert (await server.post(path, {"text": "a", "prompt": "a"}))[0] == 503
        for path in ("/health", "/ready", "/get_server_info", "/health_generate"):
            assert (await server.get(path))[0] == 503

    served(check, auto=False)


def test_a_question_to_a_process_that_dies_is_answered() -> None:
    async def check(server: Served) -> None:
        server.engine.auto_answer = False
        asking = asyncio.create_task(server.get("/get_server_info"))
        await server.engine.saw(Control)
        server.engine.tell(PeerDied("scheduler", 1))
        assert (await asking)[0] == 503

    served(check, auto=False)


def test_an_answer_to_nobody_is_dropped() -> None:
    async def check(server: Served) -> None:
        server.engine.auto_answer = False
        asking = asyncio.create_task(server.get("/get_server_info"))
        (control,) = await server.engine.saw(Control)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        server.engine.answer(control)
        server.engine.auto_answer = True
        assert (await server.get("/get_server_info"))[0] == 200

    served(check)


def test_a_slow_reader_holds_up_nobody_and_waits_with_bounded_buffers() -> None:
    async def check(server: Served) -> None:
        body = orjson.dumps({"prompt": "a", "stream": True, "max_tokens": 1 << 20})
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        await server.engine.saw(Generate)
        slow = next(iter(server.client._sequences.by_uid.values()))
        big = "x" * 100_000
        server.engine.step([1])
        for i in range(400):  # 40 MB, of which this client reads nothing
            server.engine.tell(TokenStep([1], b"\0\0\0\0", texts=[big]))
            if i % 10 == 0:
                status, _ = await server.get("/health")
                assert status == 200
        assert slow.texts is not None and len(slow.texts) > 100, "what is not read must wait with its sequence"
        fast = ask(server, sampling_params={"max_new_tokens": 1})
        await server.engine.saw(Generate, 2)
        server.engine.step([2])
        assert (await fast)[0] == 200
        writer.close()
        await server.engine.saw(Abort)
        assert slow.texts is None

    served(check, auto=False)


def test_a_failure_of_ours_is_a_500_and_the_server_goes_on() -> None:
    async def check(server: Served) -> None:
        server.engine.state_body = b"[]"  # not what the scheduler's contract says
        status, reply = await server.get("/get_server_info")
        assert status == 500 and set(reply["error"]) == {"message"}
        assert (await server.post("/generate", {"text": "a"}))[0] == 200

    served(check)


@pytest.mark.parametrize("path, body", STREAMS)
def test_a_failure_of_ours_within_a_stream_is_an_event(path: str, body: dict) -> None:
    async def check(server: Served) -> None:
        reading = asyncio.create_task(server.events(path, body))
        await server.engine.saw(Generate)
        server.engine.step()
        await server.get("/health")
        server.client.deliver(TokenStep([1], b"\0\0\0\0", texts=["\ud800"]))  # no text that JSON can hold
        *_, error, done = await reading
        assert done == "[DONE]" and error["error"]["code"] == (500 if path == "/generate" else None)
        await server.engine.saw(Abort)

    served(check, auto=False)


def test_a_connection_that_breaks_within_its_body_is_forgotten() -> None:
    async def check(server: Served) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b'POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"text"')
        await writer.drain()
        writer.close()
        assert (await server.post("/generate", {"text": "a"}))[0] == 200
        assert len(server.engine.of_type(Generate)) == 1

    served(check)
