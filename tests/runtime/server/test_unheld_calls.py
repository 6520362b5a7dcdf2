"""A call inside a thought, or quoted in an answer, is never returned as a call."""

from typing import Any

import pytest

from ramet.ipc.messages import Generate
from ramet.runtime.intake.chat import Style
from tests.fakes.engine import pieces_of
from tests.fakes.server import Served, served

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
USER = {"role": "user", "content": "hi"}
WEATHER = {"name": "weather", "parameters": {"type": "object"}}
TOOLS = {"messages": [USER], "tools": [{"type": "function", "function": WEATHER}]}
STRICT = {"messages": [USER], "tools": [{"type": "function", "function": {**WEATHER, "strict": True}}]}
NAMED = {"type": "function", "function": {"name": "weather"}}
IN_TEXT = {"separate_reasoning": False}


def call(city: str) -> str:
    return f'<tool_call>\n{{"name": "weather", "arguments": {{"city": "{city}"}}}}\n</tool_call>'


THOUGHT = f"<think>\nPerhaps {call('Oslo')} or so\n\n</think>\n"
ASKED = [
    TOOLS,
    TOOLS | {"tool_choice": "required"},
    TOOLS | {"tool_choice": NAMED},
    STRICT,
    TOOLS | {"parallel_tool_calls": False},
]


async def message_of(server: Served, body: dict[str, Any], says: list[str]) -> tuple[str, list[str]]:
    """The reply's content and the arguments of its calls, after checking that the stream has the same."""
    server.engine.says = says
    status, reply = await server.post(CHAT, body)
    assert status == 200, reply
    message = reply["choices"][0]["message"]
    deltas = [event["choices"][0]["delta"] for event in (await server.events(CHAT, body | {"stream": True}))[:-1]]
    calls = [each["function"]["arguments"] for each in message.get("tool_calls", ())]
    fragments = [each["function"]["arguments"] for delta in deltas for each in delta.get("tool_calls") or ()]
    assert "".join(delta.get("content") or "" for delta in deltas) == (message["content"] or "")
    assert "".join(fragments) == "".join(calls)
    return message["content"] or "", calls


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("asked", ASKED, ids=["auto", "required", "named", "strict", "single"])
def test_a_call_in_a_thought_that_stays_in_the_text_is_text(asked: dict[str, Any], seed: int | None) -> None:
    async def check(server: Served) -> None:
        said = THOUGHT + call("Rome")
        says = [said] if seed is None else pieces_of(said, seed)
        assert await message_of(server, asked | IN_TEXT, says) == (THOUGHT.rstrip(), ['{"city": "Rome"}'])

    served(check)


def test_a_thought_that_the_prompt_opened_stays_in_the_text_as_it_is() -> None:
    async def check(server: Served) -> None:
        server.engine.prompt_end = "<think>\n"
        says = [f" {call('Oslo')}", "\n</thi", "nk>\n\nSo: ", call("Rome")]
        content, calls = await message_of(server, TOOLS | IN_TEXT, says)
        assert (content, calls) == (f" {call('Oslo')}\n</think>\n\nSo:", ['{"city": "Rome"}'])
        assert await message_of(server, TOOLS | IN_TEXT, says[:1]) == (says[0], [])

    served(check)


def test_an_output_without_a_thought_is_read_as_ever_where_thoughts_stay_in_the_text() -> None:
    async def check(server: Served) -> None:
        assert await message_of(server, TOOLS | IN_TEXT, ["So: ", call("Rome")]) == ("So:", ['{"city": "Rome"}'])

    served(check)


def test_a_call_in_a_thought_whose_tags_the_client_does_not_want_to_see_is_no_call() -> None:
    async def check(server: Served) -> None:
        says = ["[THINK]", call("Oslo"), "[/THINK]", "Yes"]
        assert await message_of(server, TOOLS | {"skip_special_tokens": True}, says) == ("Yes", [])
        assert not any(sent.spec.params.skip_special_tokens for sent in server.engine.of_type(Generate))

    served(check, style=Style("hermes", "mistral"))


FORMAT = {"response_format": {"type": "json_object"}}
QUOTED = [
    ("mistral", '{"a": "[TOOL_CALLS]weather{}"}'),
    ("mistral", '["[TOOL_CALLS]weather[ARGS]{}"]'),
    ("deepseek", '{"a": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{}"}'),
    ("pythonic", '["<|python_start|>[weather()]"]'),
    ("pythonic", '{"a": "<|python_start|>[weather()]<|python_end|>"}'),
]


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("parser, answer", QUOTED)
def test_an_answer_that_quotes_a_call_is_an_answer(parser: str, answer: str, seed: int | None) -> None:
    async def check(server: Served) -> None:
        says = [answer] if seed is None else pieces_of(answer, seed)
        assert await message_of(server, TOOLS | FORMAT, says) == (answer, [])

    served(check, style=Style(parser, None))


CALLS = {
    "mistral": '[TOOL_CALLS][{"name": "weather", "arguments": {"a": 1}}]',
    "deepseek": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>',
    "pythonic": "[weather(a=1)]",
    "hermes": '<tool_call>\n{"name": "weather", "arguments": {"a": 1}}\n</tool_call>',
}


@pytest.mark.parametrize("parser", CALLS)
def test_calls_in_the_place_of_an_answer_are_calls(parser: str) -> None:
    async def check(server: Served) -> None:
        assert await message_of(server, TOOLS | FORMAT, pieces_of(CALLS[parser], 3)) == ("", ['{"a": 1}'])

    served(check, style=Style(parser, None))
