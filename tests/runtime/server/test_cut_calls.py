"""A call that a stop of the client's cut off is not returned as one to make, on any surface."""

import json
from typing import Any

import pytest

from ramet.ipc.messages import Finish, FinishKind
from tests.fakes.engine import EOS, pieces_of
from tests.fakes.server import Served, served

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
USER = {"role": "user", "content": "hi"}
FUNCTION = {"name": "weather", "parameters": {"type": "object"}}
TOOLS: dict[str, Any] = {
    CHAT: {"messages": [USER], "tools": [{"type": "function", "function": FUNCTION}]},
    RESPONSES: {"input": "hi", "tools": [{"type": "function", **FUNCTION}]},
    MESSAGES: {
        "messages": [USER],
        "max_tokens": 99,
        "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
    },
}
WHOLE = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
BEGUN = '<tool_call>\n{"name": "weather"'
STOPPED = 7  # an id in stop_token_ids
# what a stop that was found leaves of an output; whether its newest call is whole
CUT = [
    (BEGUN, False),
    (f'{BEGUN}, "arguments": ', False),
    (f'{BEGUN}, "arguments": {{"city": "', False),
    (f'{BEGUN}, "arguments": {{"city": "\\', False),
    (f'{BEGUN}, "arguments": {{"city": "}}"', False),
    (f"{WHOLE}\n{BEGUN}", False),
    (f'{BEGUN}, "arguments": {{"city": "Rome"}}', True),
    (WHOLE, True),
    (f"{WHOLE}\nIt is", True),
]


async def ended(server: Served, path: str, **asked: Any) -> tuple[Any, ...]:
    """How an output ended: the same in a stream and in a whole reply."""
    body = {**TOOLS[path], **asked}
    status, reply = await server.post(path, body)
    assert status == 200, reply
    async with server.http.post(path, json={**body, "stream": True}) as response:
        lines = (await response.text()).splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
    events = [json.loads(each) for each in data]
    match path:
        case "/v1/chat/completions":
            (last,), (whole,) = events[-1]["choices"], reply["choices"]
            found = [(choice["finish_reason"], choice["matched_stop"]) for choice in (last, whole)]
        case "/v1/responses":
            last = events[-1]
            assert last["type"] == f"response.{last['response']['status']}"
            replies = [last["response"], reply]
            found = [(each["status"], each["incomplete_details"], each["output"][-1]["status"]) for each in replies]
        case _:
            found = [(each["stop_reason"], each["stop_sequence"]) for each in (events[-2]["delta"], reply)]
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("said, whole", CUT, ids=[said for said, _ in CUT])
def test_a_call_that_a_stop_string_cut_off_is_not_one_to_make(said: str, whole: bool) -> None:
    async def check(server: Served) -> None:
        server.engine.says, server.engine.stop = pieces_of(said, 3), Finish(FinishKind.STOP, matched="Rome")
        assert await ended(server, CHAT) == ("tool_calls" if whole else "stop", "Rome")
        assert await ended(server, MESSAGES) == (("tool_use", None) if whole else ("stop_sequence", "Rome"))
        cut = "incomplete", {"reason": "stop"}, "incomplete"
        assert await ended(server, RESPONSES) == (("completed", None, "completed") if whole else cut)

    served(check)


def test_a_call_that_a_stop_token_of_the_client_s_cut_off_is_not_one_to_make() -> None:
    async def check(server: Served) -> None:
        server.engine.says = pieces_of(f'{BEGUN}, "arguments": {{"city": "', 3)
        server.engine.stop = Finish(FinishKind.STOP, matched=STOPPED)
        asked = {"stop_token_ids": [STOPPED]}
        assert await ended(server, CHAT, **asked) == ("stop", STOPPED)
        assert await ended(server, RESPONSES, **asked, stop=["x"]) == ("incomplete", {"reason": "stop"}, "incomplete")
        assert await ended(server, MESSAGES, **asked) == ("end_turn", None)

    served(check)


BROKEN = f'{BEGUN}, "arguments": {{"city": tru }}}}\n</tool_call>'


@pytest.mark.parametrize("said", [BROKEN, f"{WHOLE}\n{BROKEN}", f"{BROKEN}\n{WHOLE}"])
def test_a_call_that_went_wrong_is_not_one_to_make(said: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says, server.engine.stop = pieces_of(said, 3), Finish(FinishKind.STOP, matched=EOS)
        assert await ended(server, CHAT) == ("stop", EOS)
        assert await ended(server, MESSAGES) == ("end_turn", None)
        _, reply = await server.post(RESPONSES, TOOLS[RESPONSES])
        calls = {item["arguments"]: item["status"] for item in reply["output"] if item["type"] == "function_call"}
        assert calls['{"city": tru'] == "incomplete" and calls.get('{"city": "Rome"}', "completed") == "completed"

    served(check)


def test_line_breaks_in_a_call_leave_it_whole() -> None:
    async def check(server: Served) -> None:
        said = f'{BEGUN}, "arguments": {{"city": "Rome\nor\\Oslo"}}}}\n</tool_call>'
        server.engine.says, server.engine.stop = pieces_of(said, 3), Finish(FinishKind.STOP, matched=EOS)
        assert await ended(server, CHAT) == ("tool_calls", EOS)
        _, reply = await server.post(MESSAGES, TOOLS[MESSAGES])
        assert reply["content"][0]["input"] == {"city": "Rome\nor\\Oslo"}

    served(check)


def test_a_call_that_the_model_itself_left_open_is_still_one() -> None:
    async def check(server: Served) -> None:
        server.engine.says = pieces_of(f'{BEGUN}, "arguments": {{"city": "', 3)
        server.engine.stop = Finish(FinishKind.STOP, matched=EOS)
        assert await ended(server, CHAT, stop_token_ids=[STOPPED]) == ("tool_calls", EOS)
        assert await ended(server, MESSAGES) == ("tool_use", None)
        assert await ended(server, RESPONSES) == ("completed", None, "completed")

    served(check)
