"""A chat becomes what its template gets, with the client's own keys, and any callable renders it."""

import asyncio
from typing import Any

import orjson
import pytest

from ramet.ipc.messages import Chat, RenderReply, pack_ids
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import RequestSpec
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.chat import Style, chat_of, prepare, write_chat

USER = {"role": "user", "content": "Hi", "look": [1]}
TOOL = {"function": {"parameters": {"b": 1, "a": 2}, "name": "f", "strict": None}, "type": "function"}
SPEC = RequestSpec(SamplingParams())


async def rendered(chat: bytes, *_: bool) -> RenderReply:
    return RenderReply(0, pack_ids([len(orjson.loads(chat)["messages"])]), "tail")


def test_a_template_gets_the_client_s_keys_in_their_order() -> None:
    other = {"type": "function", "function": {"name": "g"}}
    chat = chat_of({"messages": [USER], "tools": [TOOL, other], "unknown": 1}, frozenset({"f"}))
    assert chat.messages == [USER] and chat.tools is not None
    written = orjson.dumps(chat.tools)
    assert written == b'[{"function":{"parameters":{"b":1,"a":2},"name":"f"},"type":"function"}]'


@pytest.mark.parametrize("fields, begins, goes_on", [
    ({}, True, False),
    ({"add_generation_prompt": False}, False, False),
    ({"continue_final_message": True}, False, True),
])  # fmt: skip
def test_a_prompt_begins_a_reply_or_goes_on(fields: dict[str, Any], begins: bool, goes_on: bool) -> None:
    chat = chat_of({"messages": [USER], **fields}, frozenset())
    assert (chat.add_generation_prompt, chat.continue_final_message) == (begins, goes_on)


def test_a_prompt_cannot_do_both() -> None:
    with pytest.raises(ClientError, match="only one of them"):
        chat_of({"messages": [USER], "continue_final_message": True, "add_generation_prompt": True}, frozenset())


def test_special_tokens_show_where_a_parser_looks_for_them() -> None:
    chat = write_chat(Chat([USER], [TOOL]), {})
    prompt, reading = asyncio.run(prepare(rendered, Style("mistral"), chat, SPEC))
    assert prompt.content.ids == pack_ids([1]) and reading.tail == "tail" and reading.tools == {"f"}
    assert not prompt.spec.params.skip_special_tokens
    asked = RequestSpec(SamplingParams(skip_special_tokens=False))
    assert asyncio.run(prepare(rendered, Style("mistral"), chat, asked))[0].spec == asked
    assert asyncio.run(prepare(rendered, Style("mistral"), write_chat(Chat([USER]), {}), SPEC))[0].spec == SPEC


def test_half_a_surrogate_pair_is_refused_before_it_is_rendered() -> None:
    with pytest.raises(ClientError, match=r"^messages\[0\].content is '\\ud800', which cannot be written as JSON"):
        write_chat(Chat([{"role": "user", "content": "\ud800"}]), {})


def test_an_error_of_the_template_names_the_field_that_holds_the_chat() -> None:
    async def refusing(chat: bytes, *_: bool) -> RenderReply:
        raise ClientError("messages[1].role", "is wrong")

    with pytest.raises(ClientError, match=r"^input is wrong"):
        asyncio.run(prepare(refusing, Style(), write_chat(Chat([USER]), {}), SPEC, place="input"))
