"""GPT-OSS' channels become thought, answer and calls on every API, streamed and whole."""

from typing import Any

import pytest

from ramet.ipc.messages import Generate
from ramet.ipc.spec import ConstraintKind
from ramet.runtime.intake.chat import Style
from tests.fakes.engine import pieces_of
from tests.fakes.server import Served, served

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
STYLE = Style("gpt-oss", "gpt-oss", True)
USER = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
BODIES = {
    CHAT: {"messages": [USER], "tools": TOOLS},
    RESPONSES: {"input": "hi", "tools": [{"type": "function", "name": "weather", "parameters": SCHEMA}]},
    MESSAGES: {"messages": [USER], "max_tokens": 99, "tools": [{"name": "weather", "input_schema": SCHEMA}]},
}
THOUGHT = "<|channel|>analysis<|message|>Look it up.<|end|><|start|>assistant"
CALL = '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Rome"}'
SAID = f"{THOUGHT}<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant{CALL}"
ANSWER = f"{THOUGHT}<|channel|>final<|message|>It is warm."


def of_reply(path: str, reply: dict[str, Any]) -> tuple[str | None, str | None, list[Any], str]:
    """The reply's thought, content, calls and finish reason."""
    match path:
        case "/v1/chat/completions":
            (choice,) = reply["choices"]
            message = choice["message"]
            calls = [
                (call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())
            ]
            return message["reasoning_content"], message["content"], calls, choice["finish_reason"]
        case "/v1/responses":
            items = {item["type"]: item for item in reply["output"]}
            thought, text = (items[name]["content"][0]["text"] for name in ("reasoning", "message"))
            calls = [(item["name"], item["arguments"]) for item in reply["output"] if item["type"] == "function_call"]
            return thought, text, calls, "tool_calls" if calls else "stop"
    blocks = {block["type"]: block for block in reply["content"]}
    calls = [(block["name"], block["input"]) for block in reply["content"] if block["type"] == "tool_use"]
    ended = {"tool_use": "tool_calls", "end_turn": "stop"}[reply["stop_reason"]]
    return blocks["thinking"]["thinking"], blocks["text"]["text"], calls, ended


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("path", BODIES)
def test_a_whole_reply_has_thought_content_and_calls(path: str, seed: int | None) -> None:
    async def check(server: Served) -> None:
        server.engine.says = [SAID] if seed is None else pieces_of(SAID, seed)
        arguments: Any = {"city": "Rome"} if path == MESSAGES else '{"city": "Rome"}'
        status, reply = await server.post(path, BODIES[path])
        assert status == 200, reply
        assert of_reply(path, reply) == ("Look it up.", "One moment.", [("weather", arguments)], "tool_calls")
        server.engine.says = [ANSWER] if seed is None else pieces_of(ANSWER, seed)
        _, reply = await server.post(path, BODIES[path])
        assert of_reply(path, reply) == ("Look it up.", "It is warm.", [], "stop")
        assert not any(sent.spec.params.skip_special_tokens for sent in server.engine.of_type(Generate))

    served(check, style=STYLE)


async def streamed(server: Served, body: dict[str, Any]) -> tuple[str, str, str, str]:
    """The stream's thought, content, names and arguments."""
    events = (await server.events(CHAT, {**body, "stream": True}))[:-1]
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls") or ()]
    return joined(deltas, "reasoning"), joined(deltas, "content"), joined(calls, "name"), joined(calls, "arguments")


def joined(parts: list[dict[str, Any]], key: str) -> str:
    return "".join(part.get(key) or "" for part in parts)


@pytest.mark.parametrize("fields, thought, content", [
    ({}, "Look it up.", "One moment."), ({"stream_reasoning": False}, "Look it up.", "One moment."),
    ({"include_reasoning": False}, "", "One moment."),
    ({"separate_reasoning": False}, "", f"{THOUGHT.removesuffix('<|start|>assistant')}One moment."),
])  # fmt: skip
def test_a_stream_has_thought_content_and_calls(fields: dict[str, Any], thought: str, content: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says = pieces_of(SAID, 2)
        found = await streamed(server, {**BODIES[CHAT], **fields})
        assert found == (thought, content, "weather", '{"city": "Rome"}')

    served(check, style=STYLE)


def test_a_chat_without_tools_has_no_headers_either() -> None:
    async def check(server: Served) -> None:
        for fields in ({}, {"separate_reasoning": False}):
            server.engine.says = pieces_of(ANSWER, 3)
            thought, content, *_ = await streamed(server, {"messages": [USER], **fields})
            assert (thought, content.endswith("It is warm.")) == ("" if fields else "Look it up.", True)
            assert "final" not in content and "assistant" not in content
        assert not any(sent.spec.params.skip_special_tokens for sent in server.engine.of_type(Generate))

    served(check, style=STYLE)


def test_the_tokens_of_a_thought_are_counted() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["<|channel|>", "analysis", "<|message|>", "x", "<|end|>", "<|start|>", "assistant",
                              "<|channel|>", "final", "<|message|>", "y", "z"]  # fmt: skip
        _, reply = await server.post(CHAT, {"messages": [USER]})
        assert reply["usage"]["reasoning_tokens"] == 10

    served(check, style=STYLE)


@pytest.mark.parametrize("fields", [{"response_format": {"type": "json_object"}}, {"guided_regex": "[{].*"}])
def test_a_constraint_begins_with_the_final_answer(fields: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        answer = '{"a": "<|end|><|start|>x"}'
        server.engine.says = pieces_of(f"{THOUGHT}<|channel|>final<|message|>{answer}", 4)
        _, reply = await server.post(CHAT, {"messages": [USER], **fields})
        message = reply["choices"][0]["message"]
        assert (message["reasoning"], message["content"]) == ("Look it up.", answer)
        constraint = server.engine.of_type(Generate)[-1].spec.constraint
        assert (constraint.opens, constraint.after) == ("<|channel|>", "<|channel|>final<|message|>")
        server.engine.says = [answer]
        _, reply = await server.post(CHAT, {"messages": [USER], "reasoning_effort": "none", **fields})
        assert reply["choices"][0]["message"]["content"] == answer

    served(check, style=STYLE)


@pytest.mark.parametrize("fields", [
    {"tool_choice": "required"}, {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
    {"response_format": {"type": "json_object"}},
    {"tools": [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA, "strict": True}}]},
])  # fmt: skip
def test_the_form_of_forced_calls_has_the_thought_in_it(fields: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        quoting = THOUGHT.replace("Look", f"<|start|>assistant{CALL.replace('Rome', 'Oslo')}<|call|>")
        server.engine.says = pieces_of(quoting + CALL, 5)
        status, reply = await server.post(CHAT, {**BODIES[CHAT], **fields})
        assert status == 200, reply
        assert of_reply(CHAT, reply)[2] == [("weather", '{"city": "Rome"}')]
        constraint = server.engine.of_type(Generate)[-1].spec.constraint
        assert (constraint.kind, constraint.opens, constraint.after) == (ConstraintKind.STRUCTURAL_TAG, "", "")
        assert '"begin":"<|channel|>analysis<|message|>"' in constraint.text

    served(check, style=STYLE)
