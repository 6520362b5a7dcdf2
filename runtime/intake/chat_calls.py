"""What a program gives to `LLM.chat`: messages, tools and what the template gets -> chats, each with its spec.

Decides what is one chat and what is a list of them, and that an output may go on to the end of the context. What a chat
may ask of the model and how its outputs are read: chat.py.
"""

import asyncio
from collections.abc import Sequence as Many
from typing import Any, NamedTuple

from msgspec.structs import replace

from ramet.ipc.messages import Chat
from ramet.ipc.params import MAX_NEW_TOKENS
from ramet.ipc.spec import RequestSpec
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.calls import Defaults, read_calls
from ramet.runtime.intake.chat import (
    Prepared,
    Render,
    Style,
    callable_tools,
    chat_of,
    prepare,
    refuse_without_parser,
)
from ramet.runtime.intake.messages import ChatFields


class ChatCall(NamedTuple):
    """One chat. `as_shown`: its caller says which special tokens the text has."""

    chat: Chat
    spec: RequestSpec
    style: Style
    parallel: bool
    as_shown: bool


def read_chats(
    messages: Any,
    sampling_params: Any,
    fields: dict[str, Any],
    extras: dict[str, Any],
    defaults: Defaults,
    style: Style,
    parallel: bool = True,
) -> list[ChatCall]:
    """One for each chat, in order. `fields`: those of ChatFields but the messages. Raises ClientError."""
    single = not isinstance(messages, list | tuple) or not messages or isinstance(messages[0], dict)
    chats = [messages] if single else list(messages)
    to_the_end = defaults._replace(params=replace(defaults.params, max_new_tokens=MAX_NEW_TOKENS))
    specs = read_calls(len(chats), sampling_params, extras, to_the_end)
    given = sampling_params if isinstance(sampling_params, list | tuple) else [sampling_params] * len(chats)
    return [
        ChatCall(
            _read("" if single else f"chat {i}: ", {**fields, "messages": chat}, style),
            specs[i],
            style,
            parallel,
            as_shown=(given[i] or {}).get("skip_special_tokens") is not None,
        )
        for i, chat in enumerate(chats)
    ]


async def prepare_all(render: Render, calls: Many[ChatCall]) -> list[Prepared]:
    """Raises the ClientError of a chat that cannot be rendered."""
    return list(
        await asyncio.gather(
            *(prepare(render, c.style, c.chat, c.spec, parallel=c.parallel, as_shown=c.as_shown) for c in calls)
        )
    )


def _read(which: str, written: dict[str, Any], style: Style) -> Chat:
    """`which`: said before an error's place, in a list of chats."""
    try:
        body = convert(written, ChatFields)
        names = callable_tools(body.tool_choice, [tool.function.name for tool in body.tools or ()])
        refuse_without_parser(names, style)
        return chat_of(written, names)
    except ClientError as error:
        raise error.at(which + error.place) from None
