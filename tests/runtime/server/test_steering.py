"""What `tool_choice` and the asked effort mean, and what of them is refused."""

from typing import Any

import orjson
import pytest

from ramet.ipc.messages import Render
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.chat import Style, template_kwargs
from ramet.runtime.intake.messages import ChatFields
from ramet.runtime.intake.tool_choice import CallRules, read_choice
from tests.fakes.server import Served, served

NAMES = ("search", "weather")
USER = {"role": "user", "content": "a"}
IN_CHATS = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
    {"type": "function", "function": {"name": "weather"}}]}}  # fmt: skip
IN_RESPONSES = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]}


ONE = {"type": "function", "function": {"name": "weather"}}
ONE_IN_RESPONSES = {"type": "function", "name": "weather"}
WEATHER, BOTH = frozenset({"weather"}), frozenset(NAMES)


def calls_of(choice: Any) -> CallRules:
    """As a chat's body has it."""
    return read_choice(convert({"messages": [USER], "tool_choice": choice}, ChatFields).tool_choice, NAMES)


@pytest.mark.parametrize("choice, calls", [
    (None, CallRules(BOTH)), ("auto", CallRules(BOTH)), ("none", CallRules()),
    ("required", CallRules(BOTH, forced=True)), (ONE, CallRules(WEATHER, forced=True, single=True)),
    (ONE_IN_RESPONSES, CallRules(WEATHER, forced=True, single=True)),
    (IN_CHATS, CallRules(WEATHER)), (IN_RESPONSES, CallRules(WEATHER)),
    ({**IN_RESPONSES, "mode": "required"}, CallRules(WEATHER, forced=True)),
])  # fmt: skip
def test_a_choice_leaves_some_tools_and_may_force_a_call(choice: Any, calls: CallRules) -> None:
    assert calls_of(choice) == calls


@pytest.mark.parametrize("choice, words", [
    ({"type": "function"}, "must have the function's name"), ({"type": "function", "function": {}}, "missing"),
    ({"type": "function", "name": "other"}, "'other', must name one of tools: search, weather"),
    ({"type": "custom", "custom": {"name": "a"}}, "'custom'"), ({**IN_RESPONSES, "mode": "maybe"}, "mode"),
    ({**IN_RESPONSES, "tools": [{"name": "other"}]}, "'other'"), ({**IN_RESPONSES, "tools": [3]}, "is 3"),
    ({**IN_RESPONSES, "tools": []}, "a list of tools"),
    ({"type": "allowed_tools"}, "mode"), ("maybe", "'maybe'"), ({}, "is missing"),
])  # fmt: skip
def test_what_names_no_tool_is_refused(choice: Any, words: str) -> None:
    with pytest.raises(ClientError) as caught:
        calls_of(choice)
    assert caught.value.place.startswith("tool_choice") and words in str(caught.value)


def test_a_call_that_is_forced_needs_tools() -> None:
    with pytest.raises(ClientError, match="tools is empty"):
        read_choice("required", ())
    assert read_choice("auto", ()) == CallRules()


@pytest.mark.parametrize("effort, verbosity, kwargs", [
    (None, None, {}), ("none", None, {"reasoning_effort": "none", "enable_thinking": False}),
    ("high", "low", {"reasoning_effort": "high", "enable_thinking": True, "verbosity": "low"}),
])  # fmt: skip
def test_templates_get_an_effort_and_whether_to_think(effort: Any, verbosity: Any, kwargs: Any) -> None:
    assert template_kwargs(effort, verbosity) == kwargs


def test_the_template_sees_only_the_tools_that_are_left() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        functions: list[dict[str, Any]] = [{"name": name, "parameters": {"type": "object"}} for name in NAMES]
        message = {"role": "user", "content": "a"}
        await server.post("/v1/chat/completions", {
            "messages": [message], "tool_choice": IN_CHATS,
            "tools": [{"type": "function", "function": each} for each in functions],
        })  # fmt: skip
        await server.post("/v1/responses", {
            "input": "a", "tool_choice": IN_RESPONSES, "tools": [{"type": "function", **each} for each in functions],
        })  # fmt: skip
        for sent in server.engine.of_type(Render):
            assert [tool["function"]["name"] for tool in orjson.loads(sent.chat)["tools"]] == ["weather"]

    served(check)


def test_tools_are_refused_where_the_template_does_not_speak_of_them() -> None:
    async def check(server: Served) -> None:
        tool = {"type": "function", "function": {"name": "f"}}
        body = {"messages": [{"role": "user", "content": "a"}], "tools": [tool]}
        status, reply = await server.post("/v1/chat/completions", body)
        assert status == 400 and reply["error"]["param"] == "tools" and "does not speak" in reply["error"]["message"]

    served(check, style=Style("hermes", None, True, shows_tools=False))
