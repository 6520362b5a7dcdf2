"""Chats of `LLM` have the constraints of those of the server: of their parameters, their tools, their thoughts."""

import asyncio
from typing import Any

import pytest

from ramet.ipc.messages import Limits, RenderReply, pack_ids
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import Constraint
from ramet.runtime.engine_client.media import NO_MEDIA
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.calls import CallDefaults
from ramet.runtime.intake.chat import Style
from ramet.runtime.intake.programs import read_chats
from ramet.runtime.intake.reading import Thoughts

DEFAULTS = CallDefaults(SamplingParams(), Limits(1024, 4096, 512, 8, 4), processors_on=False)
HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
STRICT = {"type": "function", "function": {"name": "f", "strict": True}}


def constraints(messages: Any, params: Any = None, extras: Any = None, **fields: Any) -> list[Constraint | None]:
    async def render(chat: bytes, *_: bool) -> RenderReply:
        return RenderReply(0, pack_ids([1]), "<think>")

    style = Style("hermes", "qwen3")
    calls = read_chats(messages, params, fields, extras or {}, DEFAULTS, style, True, Thoughts.IN_TEXT)
    return [asyncio.run(call(render, NO_MEDIA))[0].spec.constraint for call in calls]


def test_each_chat_has_the_constraint_of_its_parameters() -> None:
    first, second = constraints([HI, HI], [{"regex": "a"}, {}])
    assert first is not None and second is None
    assert (first.text, first.after) == ("a", "</think>")


@pytest.mark.parametrize("fields", [{"tools": [TOOL], "tool_choice": "required"}, {"tools": [STRICT]}])
def test_calls_are_held_to_their_tools(fields: dict[str, Any]) -> None:
    params = [{"grammar_backend": "xgrammar"}, None, None]
    found = constraints([HI, HI, HI], params, {"grammar_backend": [None, "outlines", None]}, **fields)
    assert [each and each.backend for each in found] == ["xgrammar", "outlines", ""]
    assert all(each is not None and "<tool_call>" in each.text for each in found)


def test_an_error_says_which_chat_it_is_about() -> None:
    with pytest.raises(ClientError, match=r"^chat 1: regex is set|^chat 1: sampling_params.regex is set, but tools"):
        constraints([HI, HI], [{}, {"regex": "a"}], tools=[TOOL])
