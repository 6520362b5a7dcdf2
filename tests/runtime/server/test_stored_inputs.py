"""What of a response's input is stored: when it is read for that, and that it is what was sent, however large it is."""

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from ramet.ipc.messages import Render
from ramet.runtime.server.http.body_reader import BodyReader
from ramet.runtime.server.openai.responses_chat import items_to_store
from tests.fakes.media import TAKES_MEDIA, FakeMedia
from tests.fakes.server import Served, served

PATH = "/v1/responses"
SIZES = 0, 100_000, 1_200_000  # bytes of bodies that the loop reads, and each of the two processes
LONG = 10**30
CALL = {"type": "function_call", "id": "mine", "call_id": "c", "name": "f", "arguments": '{"a": "é"}'}
ITEMS: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be kind. 😀"},
    {"role": "user", "content": [{"type": "input_text", "text": "How is "}, {"type": "input_text", "text": "it?"}]},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}], "status": "completed"},
    {"type": "message", "role": "assistant", "content": "Let me see."},
    CALL,
    {"type": "local_shell_call", "call_id": "d", "action": {"n": LONG, "x": None}},
    {"type": "web_search_call"},
    {"type": "function_call_output", "call_id": "c", "output": '\u2028\\"'},
]
LISTED = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be kind. 😀"}]},
    {**ITEMS[1], "type": "message"},
    ITEMS[2],
    {
        "type": "message", "role": "assistant",
        "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
    },
    *ITEMS[4:],
]  # fmt: skip
CALLS = [
    {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": "é"}'}},
    {"id": "d", "type": "function", "function": {"name": "local_shell", "arguments": {"n": LONG}}},
]
CHAT = [
    {"role": "developer", "content": "Be kind. 😀"},
    {"role": "user", "content": "How is it?"},
    {"role": "assistant", "content": "Let me see.", "reasoning_content": "t", "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "c", "content": '\u2028\\"'},
]


def long_text(size: int) -> list[dict[str, Any]]:
    """An item that makes a body so large."""
    return [{"role": "user", "content": "x" * size}] if size else []


async def answered(server: Served, body: dict[str, Any], stream: bool = False) -> dict[str, Any]:
    data = json.dumps({**body, "stream": stream}).encode()
    async with server.http.post(PATH, data=data) as response:
        assert response.status == 200, await response.text()
        if not stream:
            return orjson.loads(await response.read())
        events = (await response.read()).replace(b"event: ", b"").split(b"\n\n")
        return orjson.loads(events[-2].split(b"\ndata: ")[1])["response"]


def rendered(server: Served) -> list[dict[str, Any]]:
    """The messages of the newest chat, with all digits."""
    return json.loads(bytes(server.engine.of_type(Render)[-1].chat))["messages"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("instructions", ["", "Once."])
@pytest.mark.parametrize("size", SIZES)
def test_an_input_is_stored_and_continued_as_it_was_sent(size: int, instructions: str, stream: bool) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        more = long_text(size)
        first = await answered(server, {"input": ITEMS + more, "instructions": instructions}, stream)
        async with server.http.get(f"{PATH}/{first['id']}/input_items?order=asc") as response:
            found = json.loads(await response.read())["data"]
        assert [item["id"] for item in found if "mine" in item["id"]] == ["mine"]
        parts = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x" * size}]}] * len(
            more
        )
        for item, sent in zip(found, LISTED + parts, strict=True):
            assert item == {**sent, "id": item["id"], "status": "completed"}
        so_far = [*CHAT, *more, {"role": "assistant", "content": "Hi"}]
        follow = {"instructions": "Twice.", "previous_response_id": first["id"]}
        second = await answered(server, {**follow, "input": ITEMS + more}, stream)
        assert rendered(server) == [{"role": "system", "content": "Twice."}, *so_far, *CHAT, *more]
        await answered(server, {"input": "And?", "previous_response_id": second["id"]}, stream)
        assert rendered(server) == [*so_far, *so_far[:-1], so_far[-1], {"role": "user", "content": "And?"}]

    served(check)


@pytest.mark.parametrize("size", SIZES)
def test_media_of_an_input_are_stored_in_their_places(size: int) -> None:
    media = FakeMedia()
    pictures = [{"type": "input_image", "image_url": f"{i}" + "a" * size, "detail": "low"} for i in range(3)]
    text = {"type": "input_text", "text": "Which?"}

    async def check(server: Served) -> None:
        first = {"input": [{"role": "user", "content": [pictures[0], text, pictures[1]]}], "instructions": "Once."}
        reply = await answered(server, {**first, "max_output_tokens": 1})
        second = {"input": [{"role": "user", "content": [text, pictures[2]]}], "previous_response_id": reply["id"]}
        reply = await answered(server, {**second, "max_output_tokens": 1})
        before = rendered(server)
        await answered(server, {"input": "x", "previous_response_id": reply["id"], "max_output_tokens": 1})
        assert rendered(server)[: len(before)] == before
        in_order = [part["image_url"] for part in pictures]
        assert [[each.written for each in asked] for asked in media.asked] == [in_order[:2], in_order, in_order]
        assert {each.options["detail"] for each in media.asked[-1]} == {"low"}
        assert {each.place for each in media.asked[-1]} == {"previous_response_id"}

    served(check, limits=TAKES_MEDIA, media=media)


Read = Callable[..., Any]


@pytest.mark.parametrize("size", SIZES[1:])
def test_a_body_is_read_for_the_store_only_if_its_chat_was_accepted(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made, read = list[Any](), BodyReader.read

    def counted(self: BodyReader, make: Read, *given: Any) -> Any:
        made.append(make)
        return read(self, make, *given)

    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        refused, accepted = {"role": "user", "content": "REJECT"}, {"role": "user", "content": "a"}
        assert (await server.post(PATH, {"input": [refused, *long_text(size)]}))[0] == 400
        await answered(server, {"input": [accepted, *long_text(size)], "store": False})
        assert len(made) == 2 and items_to_store not in made
        await answered(server, {"input": [accepted, *long_text(size)]})
        assert len(made) == 4 and made[-1] is items_to_store

    monkeypatch.setattr(BodyReader, "read", counted)
    served(check)


def test_what_is_stored_is_read_although_the_process_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    killed, read = list[int](), BodyReader.read

    def killing(self: BodyReader, make: Read, *given: Any) -> Any:
        pid = self._process.pid
        if make is items_to_store and self._is_ready() and pid is not None:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        return read(self, make, *given)

    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        while not killed:  # until the process has started, this one reads
            reply = await answered(server, {"input": ITEMS + long_text(100_000)})
        _, page = await server.get(f"{PATH}/{reply['id']}/input_items")
        assert len(page["data"]) == len(ITEMS) + 1

    monkeypatch.setattr(BodyReader, "read", killing)
    served(check)
