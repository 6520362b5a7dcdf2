"""Requests of current clients (tests/data/clients) are answered, and each of their texts is in the prompt."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ramet.ipc.messages import Chat, Render
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.template_files import read_templates
from tests.fakes.server import Served, served

FOLDER = Path(__file__).parents[2] / "data" / "clients"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
TEXT = r"Text \d+\."
TEMPLATES = ["qwen", "mistral", "llama-3", "deepseek"]


def rendered(chat: Chat, template: str) -> str:
    return Chats(read_templates(Path(), template)).render(chat)


@pytest.mark.parametrize("name", NAMES)
def test_requests_of_a_client_are_answered_and_every_text_reaches_the_model(name: str) -> None:
    recorded = json.loads((FOLDER / f"{name}.json").read_text())

    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        for request in recorded["requests"]:
            status, reply = await server.post(recorded["path"], {**request, "stream": False})
            assert status == 200, reply
            chat = msgspec.json.decode(server.engine.of_type(Render)[-1].chat, type=Chat)
            without_tools = json.dumps({name: value for name, value in request.items() if name != "tools"})
            for template in TEMPLATES:
                assert sorted(re.findall(TEXT, rendered(chat, template))) == sorted(re.findall(TEXT, without_tools))

    served(check)


def test_there_are_recordings() -> None:
    assert {"codex", "claude_code", "opencode"} < set(NAMES)


# -- tools that are no functions ---------------------------------------------------------------------------------------

F = {"type": "object", "properties": {"a": {"type": "string"}}}
CHATS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
BODIES: dict[str, dict[str, Any]] = {
    CHATS: {
        "messages": [{"role": "user", "content": "a"}],
        "tools": [{"type": "web_search"}, {"type": "function", "function": {"name": "f", "parameters": F}}],
    },
    RESPONSES: {
        "input": "a",
        "tools": [{"type": "web_search"}, {"type": "function", "name": "f", "parameters": F}],
    },
    MESSAGES: {
        "messages": [{"role": "user", "content": "a"}],
        "max_tokens": 5,
        "tools": [{"type": "web_search_20250305", "name": "web_search"}, {"name": "f", "input_schema": F}],
    },
}


@pytest.mark.parametrize("path", BODIES)
def test_the_model_is_offered_functions_alone(path: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        for stream in (False, True):
            async with server.http.post(path, json={**BODIES[path], "stream": stream}) as response:
                assert response.status == 200, await response.text()
                await response.read()
            tools = json.loads(bytes(server.engine.of_type(Render)[-1].chat))["tools"]
            assert [tool["function"]["name"] for tool in tools] == ["f"]

    served(check)


@pytest.mark.parametrize("path, choice, words", [
    (CHATS, {"type": "web_search"}, "'web_search', which is left out of tools"),
    (RESPONSES, {"type": "web_search"}, "'web_search', which is left out of tools"),
    (MESSAGES, {"type": "tool", "name": "web_search"}, "'web_search', which is left out of tools"),
    (RESPONSES, {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
     "only tools that are"),
    (CHATS, {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "web_search"}]}},
     "only tools that are"),
])  # fmt: skip
def test_a_choice_that_forces_a_tool_that_is_left_out_is_refused(path: str, choice: Any, words: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(path, {**BODIES[path], "tool_choice": choice})
        assert status == 400 and words in reply["error"]["message"] and "tool_choice" in reply["error"]["message"]

    served(check)


@pytest.mark.parametrize("path, choice", [(CHATS, "required"), (RESPONSES, "required"), (MESSAGES, {"type": "any"})])
def test_a_call_cannot_be_forced_where_nothing_is_left(path: str, choice: Any) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        body = {**BODIES[path], "tools": BODIES[path]["tools"][:1]}
        status, reply = await server.post(path, {**body, "tool_choice": choice})
        assert status == 400 and "tools has no functions, only 'web_search" in reply["error"]["message"]
        assert (await server.post(path, body))[0] == 200

    served(check)


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools_are_those_that_are_left(mode: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ['<tool_call>{"name": "f", "arguments": {"a": "b"}}</tool_call>']
        choice = {
            "type": "allowed_tools",
            "mode": mode,
            "tools": [{"type": "web_search"}, {"type": "function", "name": "f"}],
        }
        status, reply = await server.post(RESPONSES, {**BODIES[RESPONSES], "tool_choice": choice})
        assert status == 200 and reply["output"][0]["name"] == "f"
        choice["tools"] = [{"type": "web_search"}]
        if mode == "auto":
            assert (await server.post(RESPONSES, {**BODIES[RESPONSES], "tool_choice": choice}))[0] == 200
            assert json.loads(bytes(server.engine.of_type(Render)[-1].chat))["tools"] is None

    served(check)


@pytest.mark.parametrize("path", BODIES)
def test_places_in_errors_count_tools_that_are_left_out(path: str) -> None:
    async def check(server: Served) -> None:
        other, function = BODIES[path]["tools"]
        inner = function.get("function", function)
        wrong = (
            {**function, "function": {**inner, "name": "a b"}} if "function" in function else {**inner, "name": "a b"}
        )
        status, reply = await server.post(path, {**BODIES[path], "tools": [other, wrong]})
        assert status == 400 and "tools[1]." in reply["error"]["message"]
        for bad, place in ((None, "tools[1]"), (3, "tools[1]"), ({**function, "type": "fuction"}, "tools[1].type")):
            status, reply = await server.post(path, {**BODIES[path], "tools": [other, bad]})
            if not (path == MESSAGES and place.endswith("type")):  # any other type is Anthropic's own
                assert status == 400 and place in reply["error"]["message"], reply

    served(check)


# -- namespaces --------------------------------------------------------------------------------------------------------

GROUP = {"type": "namespace", "name": "mcp__a", "description": "b", "tools": [
    {"type": "web_search"}, {"type": "function", "name": "f", "parameters": F, "strict": True}]}  # fmt: skip


def test_a_call_of_a_function_in_a_namespace_names_both() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ['<tool_call>{"name": "mcp__a__f", "arguments": {"a": "b"}}</tool_call>']
        status, reply = await server.post(RESPONSES, {"input": "a", "tools": [GROUP]})
        assert status == 200
        (call,) = reply["output"]
        assert (call["namespace"], call["name"], call["arguments"]) == ("mcp__a", "f", '{"a": "b"}')
        assert [tool["name"] for tool in reply["tools"][0]["tools"]] == ["f"]
        offered = json.loads(bytes(server.engine.of_type(Render)[-1].chat))["tools"]
        assert [tool["function"]["name"] for tool in offered] == ["mcp__a__f"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "c"}
        await server.post(RESPONSES, {"input": [{"role": "user", "content": "a"}, call, result], "tools": [GROUP]})
        history = json.loads(bytes(server.engine.of_type(Render)[-1].chat))["messages"]
        assert history[1]["tool_calls"][0]["function"]["name"] == "mcp__a__f"
        await server.post(RESPONSES, {"input": [result], "previous_response_id": reply["id"], "tools": [GROUP]})
        assert json.loads(bytes(server.engine.of_type(Render)[-1].chat))["messages"][1:] == history[1:]

    served(check)


def test_a_schema_of_a_namespace_is_named_by_its_place() -> None:
    async def check(server: Served) -> None:
        inner = {**GROUP["tools"][1], "name": "a b"}  # type: ignore[dict-item]
        status, reply = await server.post(RESPONSES, {"input": "a", "tools": [{**GROUP, "tools": [inner]}]})
        assert status == 400 and "tools[0].tools[0].name" in reply["error"]["message"]
        status, reply = await server.post(RESPONSES, {"input": "a", "tools": [{**GROUP, "tools": [None]}]})
        assert status == 400 and "tools[0].tools[0]" in reply["error"]["message"]

    served(check)


# -- what asks for nothing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path, fields", [
    (RESPONSES, {"tools": [], "tool_choice": "auto"}), (CHATS, {"tools": [], "tool_choice": "auto"}),
    (RESPONSES, {"context_management": []}), (RESPONSES, {"context_management": {"edits": []}}),
    (MESSAGES, {"context_management": {"edits": []}}), (MESSAGES, {"context_management": {}}),
    (MESSAGES, {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}),
    (RESPONSES, {"prompt": {}, "conversation": "", "moderation": {}, "truncation": "disabled"}),
    (MESSAGES, {"container": {}, "mcp_servers": [], "inference_geo": ""}),
    (CHATS, {"functions": [], "function_call": "auto"}),
])  # fmt: skip
def test_a_field_that_asks_for_nothing_is_taken(path: str, fields: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        body = {name: value for name, value in BODIES[path].items() if name != "tools"}
        status, reply = await server.post(path, {**body, **fields})
        assert status == 200, reply

    served(check)


@pytest.mark.parametrize("edit", [
    {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}},
    {"type": "clear_thinking_20251015"}, {"type": "clear_tool_uses_20250919"},
])  # fmt: skip
def test_an_edit_that_leaves_something_out_is_refused_by_name(edit: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(MESSAGES, {**BODIES[MESSAGES], "context_management": {"edits": [edit]}})
        assert status == 400 and "context_management.edits[0]" in reply["error"]["message"]
        assert "not built yet" in reply["error"]["message"]

    served(check)


# -- turns of one role -------------------------------------------------------------------------------------------------


def test_turns_of_one_role_are_one_turn_in_messages() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
        turns = [
            {"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "c"}, {"role": "assistant", "content": [use]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "d"}]},
            {"role": "user", "content": "e"}, {"role": "user", "content": "f"},
        ]  # fmt: skip
        assert (await server.post(MESSAGES, {**BODIES[MESSAGES], "messages": turns}))[0] == 200
        chat = json.loads(bytes(server.engine.of_type(Render)[-1].chat))["messages"]
        assert [(turn["role"], turn["content"]) for turn in chat] == [
            ("user", "a\n\nb"), ("assistant", "c"), ("tool", "d"), ("user", "e\n\nf"),
        ]  # fmt: skip
        assert chat[1]["tool_calls"][0]["function"]["name"] == "f"

    served(check)
