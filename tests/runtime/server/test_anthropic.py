"""/v1/messages: content blocks to chats, outputs to blocks and events, errors in Anthropic's shape."""

import asyncio
from typing import Any

import orjson
import pytest

from ramet.ipc.messages import Generate, Render
from ramet.ipc.params import SamplingParams
from tests.fakes.engine import CACHED, cut_somewhere, pieces_of
from tests.fakes.server import Served, served

PATH = "/v1/messages"
HELLO = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 50}
WEATHER = {"name": "weather", "description": "d", "input_schema": {"type": "object"}}
OUTPUT = (
    "<think>\nIt rains.\n</think>\n\nSure.\n"
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"city": "日本"}}\n</tool_call>'
)


async def events_of(server: Served, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a stream, whose names are their types."""
    async with server.http.post(PATH, data=orjson.dumps({**body, "stream": True})) as response:
        assert response.status == 200 and response.content_type == "text/event-stream"
        blocks = (await response.read()).decode().split("\n\n")[:-1]
    events = []
    for block in blocks:
        name, data = block.split("\n")
        event = orjson.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def replayed(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Events put together as Anthropic's clients do."""
    first, *middle, delta, stop = events
    assert first["type"] == "message_start" and stop == {"type": "message_stop"}
    message, is_open = first["message"], False
    for event in middle:
        match event["type"]:
            case "content_block_start":
                assert not is_open and event["index"] == len(message["content"])
                message["content"].append({**event["content_block"], "json": ""})
                is_open = True
            case "content_block_delta":
                assert is_open and event["index"] == len(message["content"]) - 1
                block, change = message["content"][-1], event["delta"]
                match change["type"]:
                    case "text_delta":
                        block["text"] += change["text"]
                    case "thinking_delta":
                        block["thinking"] += change["thinking"]
                    case "input_json_delta":
                        block["json"] += change["partial_json"]
            case "content_block_stop":
                assert is_open and event["index"] == len(message["content"]) - 1
                is_open = False
    assert not is_open
    for block in message["content"]:
        arguments = block.pop("json")
        if block["type"] == "tool_use":
            try:
                block["input"] = orjson.loads(arguments or "{}")
            except orjson.JSONDecodeError:  # it was cut off
                block["input"] = {"_raw": arguments}
    return {**message, **delta["delta"], "usage": delta["usage"]}


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    content = [{k: v for k, v in block.items() if k != "id"} for block in message["content"]]
    return {**message, "id": "", "content": content}


def test_a_message_has_thinking_text_and_calls() -> None:
    async def check(server: Served) -> None:
        server.engine.says = pieces_of(OUTPUT, 1)
        status, reply = await server.post(PATH, {**HELLO, "max_tokens": 500, "tools": [WEATHER]})
        assert status == 200 and reply["type"] == "message" and reply["id"].startswith("msg_")
        thinking, text, first, second = reply["content"]
        assert thinking == {"type": "thinking", "thinking": "It rains.", "signature": ""}
        assert text == {"type": "text", "text": "Sure."}
        assert (first["type"], first["name"], first["input"]) == ("tool_use", "weather", {"city": "Rome"})
        assert second["input"] == {"city": "日本"} and second["id"] != first["id"]
        assert (reply["stop_reason"], reply["stop_sequence"]) == ("tool_use", None)
        assert reply["usage"] == {
            "input_tokens": len("user:Hello\n") - CACHED,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": CACHED,
            "output_tokens": len(server.engine.says),
        }

    served(check)


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("text", [OUTPUT, "Only text 🙂", "", "<think>never closed", OUTPUT + "\nand after"])
def test_a_stream_says_what_the_whole_message_says(text: str, seed: int) -> None:
    async def check(server: Served) -> None:
        body = {**HELLO, "max_tokens": cut_somewhere(server.engine, text, seed), "tools": [WEATHER]}
        _, whole = await server.post(PATH, body)
        assert without_ids(replayed(await events_of(server, body))) == without_ids(whole)

    served(check)


def test_blocks_become_the_template_s_messages() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        turns = [
            {"role": "user", "content": [{"type": "text", "text": "How is "}, {"type": "text", "text": "Rome?"}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "a1", "name": "weather", "input": {"city": "Rome"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a1", "content": [{"type": "text", "text": "21"}]},
                {"type": "tool_result", "tool_use_id": "a2"},
                {"type": "text", "text": "Well?"},
            ]},
            {"role": "assistant", "content": "It is"},
        ]  # fmt: skip
        system = [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be brief."}]
        body = {**HELLO, "messages": turns, "system": system, "tools": [WEATHER], "thinking": {"type": "enabled"}}
        assert (await server.post(PATH, body))[0] == 200
        chat = orjson.loads(server.engine.of_type(Render)[0].chat)
        call = {"id": "a1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}
        assert chat["messages"] == [
            {"role": "system", "content": "Be kind.\n\nBe brief."},
            {"role": "user", "content": "How is Rome?"},
            {"role": "assistant", "content": "Let me see.", "reasoning_content": "t", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a1", "content": "21"},
            {"role": "tool", "tool_call_id": "a2", "content": ""},
            {"role": "user", "content": "Well?"},
            {"role": "assistant", "content": "It is"},
        ]
        function = {"name": "weather", "description": "d", "parameters": {"type": "object"}}
        assert chat["tools"] == [{"type": "function", "function": function}]
        assert chat["kwargs"] == {"enable_thinking": True}
        assert chat["continue_final_message"] is True and chat["add_generation_prompt"] is False

    served(check)


def test_fields_become_sampling_parameters() -> None:
    async def check(server: Served) -> None:
        await server.post(PATH, {
            **HELLO, "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 4, "stop_sequences": ["END"],
            "metadata": {"user_id": "u"}, "service_tier": "auto", "unknown": 1,
        })  # fmt: skip
        (sent,) = server.engine.of_type(Generate)
        assert sent.spec.params == SamplingParams(max_new_tokens=7, temperature=0.5, top_p=0.9, top_k=4, stop=("END",))

    served(check)


def test_tokens_are_counted_without_running_anything() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(PATH + "/count_tokens", {"messages": HELLO["messages"], "system": "S"})
        assert (status, reply) == (200, {"input_tokens": len("system:S\nuser:Hello\n")})
        assert not server.engine.of_type(Generate)

    served(check)


@pytest.mark.parametrize("change, named", [
    ({"max_tokens": None}, "max_tokens"), ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": "3"}, "max_tokens"),
    ({"messages": []}, "messages"), ({"messages": [{"role": "boss", "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_use_id"),
    ({"tools": [{"name": "a b"}]}, "tools[0].name"), ({"tools": [{"type": "custom_", "name": "b"}]}, "tools[0]"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"), ({"tool_choice": {}}, "tool_choice"),
    ({"thinking": {"type": "maybe"}}, "thinking"), ({"stop_sequences": 3}, "stop_sequences"), ({"top_k": 0}, "top_k"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
    ({"output_config": {"format": 3}}, "output_config.format"), ({"output_config": 3}, "output_config"),
    ({"mcp_servers": [{}]}, "mcp_servers"), ({"system": [{"type": "image"}]}, "system[0]"),
])  # fmt: skip
def test_what_is_wrong_is_refused_by_name_in_anthropic_s_shape(change: dict[str, Any], named: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(PATH, {**HELLO, **change})
        assert status == 400 and set(reply) == {"type", "error"} and reply["type"] == "error"
        assert reply["error"]["type"] == "invalid_request_error" and named in reply["error"]["message"]

    served(check)


@pytest.mark.parametrize("thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}])
def test_a_thread_is_refused_so_that_the_client_sends_whole_chats(thread: dict[str, str]) -> None:
    """anthropic-sdk-python's tool runner reads the code: without it, a turn would be answered without those before."""

    async def check(server: Served) -> None:
        status, reply = await server.post(PATH, {**HELLO, "thread": thread})
        assert status == 400 and "thread" in reply["error"]["message"]
        assert reply["error"]["details"] == {"error_code": "thread_unsupported_request"}

    served(check)


def test_how_much_effort_the_output_is_worth_changes_nothing() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        assert (await server.post(PATH, {**HELLO, "output_config": {"effort": "low"}}))[0] == 200

    served(check)


def test_the_key_may_come_in_anthropic_s_header() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        status, reply = await server.post(PATH, HELLO)
        assert status == 401 and reply["error"]["type"] == "authentication_error"
        assert (await server.post(PATH, HELLO, headers={"X-Api-Key": "wrong"}))[0] == 401
        assert (await server.post(PATH, HELLO, headers={"X-Api-Key": "secret"}))[0] == 200

    served(check, api_key="secret")


def test_a_stream_that_breaks_off_says_so() -> None:
    async def check(server: Served) -> None:
        async def step() -> None:
            await server.engine.saw(Generate)
            server.engine.step()

        stepping = asyncio.create_task(step())
        async with server.http.post(PATH, data=orjson.dumps({**HELLO, "stream": True})) as response:
            data = (await response.read()).decode()
        await stepping
        assert data.startswith("event: message_start")
        *_, last, empty = data.split("\n\n")
        assert empty == "" and last.startswith("event: error\ndata: ")
        error = orjson.loads(last.split("data: ")[1])
        assert error["type"] == "error" and error["error"]["type"] == "timeout_error"

    served(check, auto=False, request_timeout_s=0.3)
