"""A chat is bounded from its arrival on, costs what its body is worth, and leaves nothing behind."""

import asyncio
import gc
import tracemalloc
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from ramet.ipc.messages import Abort, Drain, Finish, Generate, Render
from ramet.runtime.engine_client.client import IN_TURN
from ramet.runtime.engine_client.submission import GeneratedSequence, Submission
from ramet.runtime.intake.limits import MAX_ARGUMENT_ITEMS, MAX_TOOLS, MAX_TURNS, OPENED_SHARE
from ramet.runtime.text.chat_messages import normalise
from tests.fakes.engine import LIMITS
from tests.fakes.server import Served, served

HELLO = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5}
CHATS = [("/v1/chat/completions", HELLO), ("/v1/messages", HELLO), ("/v1/responses", {"input": "Hello"})]


@pytest.mark.parametrize("path, body", CHATS)
def test_a_chat_that_is_being_rendered_has_its_place_in_the_queue(path: str, body: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        server.engine.answers_renders = False
        waiting = [asyncio.create_task(server.post(path, body)) for _ in range(2)]  # one of them could run
        await server.engine.saw(Render, 2)
        assert server.client.num_waiting == 2
        status, _ = await server.post(path, body)
        assert status == 503 and len(server.engine.of_type(Render)) == 2, "what is refused is not rendered"
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await server.get("/health")
        assert server.client.num_waiting == 0

    served(check, max_queued_requests=1, limits=replace(LIMITS, max_running_requests=1))


@pytest.mark.parametrize("path, body", CHATS)
def test_the_deadline_holds_while_a_chat_is_rendered(path: str, body: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        server.engine.answers_renders = False
        async with server.http.post(path, data=orjson.dumps(body)) as response:
            assert response.status == 504 and response.headers["X-Should-Retry"] == "false"
        assert not server.engine.of_type(Generate) and not server.engine.of_type(Abort)

    served(check, request_timeout_s=0.1)


@pytest.mark.parametrize("path, body", CHATS)
def test_a_chat_that_came_before_the_end_is_served(path: str, body: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        server.engine.says, server.engine.answers_renders = ["Hi"], False
        early = asyncio.create_task(server.post(path, body))
        await server.engine.saw(Render)
        server.engine.tell(Drain(5.0))
        draining = asyncio.create_task(server.client.requests.none_left())
        assert (await server.post(path, body))[0] == 503
        assert not draining.done()
        server.engine.answers_renders = True
        server.engine.render(server.engine.of_type(Render)[0])
        assert (await early)[0] == 200
        await draining

    served(check)


def kept() -> list[Submission | GeneratedSequence]:
    return [each for each in gc.get_objects() if type(each) in (Submission, GeneratedSequence)]


def test_nothing_is_kept_of_a_request_that_was_refused() -> None:
    async def check(server: Served) -> None:
        refused = [
            ("/v1/completions", {"prompt": "REJECT"}), ("/generate", {"text": "REJECT"}),
            ("/v1/chat/completions", {"messages": [{"role": "boss"}], "top_logprobs": 1}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "REJECT"}]}),
        ]  # fmt: skip
        gc.collect()
        gc.disable()
        try:
            before = kept()  # by tests that ran in this process before, and held here so that no address comes twice
            for path, body in refused:
                assert (await server.post(path, body))[0] == 400
            await server.get("/health")
            known = {id(each) for each in before}
            left = [each for each in kept() if id(each) not in known]
        finally:
            gc.enable()
        assert not left

    served(check)


def test_a_long_name_of_a_long_list_takes_no_memory() -> None:
    message = {"role": "user", "content": "hi", "k" * 20_000: [0] * 20_000, "j" * 20_000: ["a"] * 20_000}
    tracemalloc.start()
    normalise([message], "")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 << 20, f"{peak} bytes for a body of 200 KB"


LISTS = '{"a": [' + "[]," * (MAX_ARGUMENT_ITEMS // OPENED_SHARE // 4) + "[]]}"  # the most are in four calls
NUMBERS = '{"a": [' + "1.00000000000000001," * (MAX_ARGUMENT_ITEMS // OPENED_SHARE // 4) + "7]}"  # as above
BRACKETS = orjson.dumps({"a": "[]" * MAX_ARGUMENT_ITEMS}).decode()


STRICT = [  # whose constraint alone would be too long
    {"type": "function", "function": {"name": f"f{i}", "strict": True, "parameters": {"title": "x" * 1000}}}
    for i in range(MAX_TOOLS + 1)
]


def called(arguments: str, times: int = 1) -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [HELLO["messages"][0], {"role": "assistant", "tool_calls": [call] * times}]  # type: ignore[index]


def item(arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}


def test_brackets_in_the_strings_of_a_call_are_not_lists() -> None:
    async def check(server: Served) -> None:
        body = {**HELLO, "messages": called(BRACKETS) + called(LISTS, 3) + called(NUMBERS, 3)}
        assert (await server.post("/v1/chat/completions", body))[0] == 200

    served(check)


@pytest.mark.parametrize("path, body, named", [
    ("/v1/chat/completions", {"messages": called(LISTS, 4)}, "messages"),
    ("/v1/chat/completions", {"messages": called(LISTS, 2) + called(LISTS, 2)}, "messages"),
    ("/v1/chat/completions", {"messages": [
        {"role": "assistant", "function_call": {"name": "f", "arguments": LISTS * 4}}]}, "messages"),
    ("/v1/responses", {"input": [item(LISTS)] * 4}, "input"),
    ("/v1/chat/completions", {"messages": called(NUMBERS, 4)}, "messages"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}] * (MAX_TURNS + 1)}, "messages"),
    ("/v1/messages", {"max_tokens": 3, "messages": [
        {"role": "user", "content": [{"type": "text", "text": ""}] * MAX_TURNS}]}, "messages"),
    ("/v1/responses", {"input": [{"role": "user", "content": "a"}] * (MAX_TURNS + 1)}, "input"),
    ("/v1/chat/completions", {**HELLO, "tools": [
        {"type": "function", "function": {"name": "f"}}] * (MAX_TOOLS + 1)}, "tools"),
    ("/v1/chat/completions", {**HELLO, "modalities": ["text"] * 20_000}, "modalities"),
    ("/v1/chat/completions", {**HELLO, "rid": "a\nb"}, "rid"),
])  # fmt: skip
def test_what_is_too_much_is_refused_before_it_is_rendered(path: str, body: dict[str, Any], named: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(path, body)
        assert status == 400 and reply["error"]["message"].startswith(named), reply
        assert not server.engine.of_type(Render)

    served(check)


def test_tools_are_counted_before_a_constraint_is_made_of_them() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post("/v1/chat/completions", {**HELLO, "tools": STRICT})
        assert status == 400 and f"tools has {MAX_TOOLS + 1} entries" in reply["error"]["message"], reply
        few = {"tools": STRICT, "tool_choice": {"type": "function", "function": {"name": "f7"}}}
        server.engine.says = ["Hi"]
        assert (await server.post("/v1/chat/completions", {**HELLO, **few}))[0] == 200, "of which one may be called"

    served(check)


def test_a_batch_of_thousands_waits_for_its_turns() -> None:
    async def check(server: Served) -> None:
        asking = asyncio.create_task(server.post("/v1/embeddings", {"input": ["a"] * (2 * IN_TURN + 1)}))
        await server.engine.saw(Generate, IN_TURN)
        assert server.client.num_waiting == IN_TURN, "others wait for these few only"
        server.engine.auto = True
        server.engine._start()
        status, reply = await asking
        assert status == 200 and [entry["index"] for entry in reply["data"]] == list(range(2 * IN_TURN + 1))

    served(check, auto=False)


@pytest.mark.parametrize("path, body", [CHATS[1], CHATS[2]])
@pytest.mark.parametrize("stream", [False, True])
def test_an_end_on_somebody_s_word_is_no_end_of_a_turn(path: str, body: dict[str, Any], stream: bool) -> None:
    async def check(server: Served) -> None:
        async def end() -> None:
            (sent,) = await server.engine.saw(Generate)
            server.engine.step()
            server.engine.close(sent.uids[0], Finish.abort("", "aborted by /abort_request", status=0))

        ending = asyncio.create_task(end())
        async with server.http.post(path, data=orjson.dumps({**body, "stream": stream})) as response:
            data = await response.read()
        await ending
        assert b"/abort_request" in data and b"end_turn" not in data and b"response.completed" not in data
        if stream:
            *_, last = data.decode().strip().split("\n\n")
            assert last.startswith(("event: error", "event: response.failed"))
        else:
            assert response.status == 400

    served(check, auto=False)
