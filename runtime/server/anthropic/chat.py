"""Anthropic's messages to chats, as the template reads them: content blocks to OpenAI's messages, tools to functions.

Decides what a block becomes. Knows no reply.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from ramet.ipc.messages import Chat
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.chat import NOT_FORCED, Style, refuse_without_parser
from ramet.runtime.intake.limits import MAX_TURNS
from ramet.runtime.intake.prompts import check_most
from ramet.runtime.server.anthropic.types import (
    AssistantTurn,
    CountBody,
    MessagesBody,
    SystemTurn,
    TextContent,
    ThinkingContent,
    ToolResult,
    ToolUse,
    UserTurn,
)

Message = dict[str, Any]


def read_chat(body: CountBody | MessagesBody, style: Style) -> tuple[Chat, bool]:
    """The chat, and whether more than one call may be passed on."""
    blocks = sum(len(turn.content) for turn in body.messages if isinstance(turn.content, list))
    check_most("messages", "messages and content blocks", len(body.messages) + blocks, MAX_TURNS)
    tools = _tools(body, style)
    messages = [message for turn in body.messages for message in _messages(turn)]
    system = _joined(body.system or "", "\n\n")  # blocks are paragraphs of it
    thinks = body.thinking is not None and body.thinking.type != "disabled"
    chat = Chat(
        [*([{"role": "system", "content": system}] if system else []), *messages],
        tools or None,
        {"enable_thinking": thinks} | (body.chat_template_kwargs or {}),
        add_generation_prompt=not (goes_on := messages[-1]["role"] == "assistant"),
        continue_final_message=goes_on,
    )
    return chat, body.tool_choice is None or not body.tool_choice.disable_parallel_tool_use


def _tools(body: CountBody | MessagesBody, style: Style) -> list[dict[str, Any]]:
    choice = body.tool_choice.type if body.tool_choice is not None else "auto"
    if choice in ("any", "tool"):
        raise ClientError("tool_choice", f"is of type {choice!r}, which {NOT_FORCED}", "use auto")
    tools = [] if choice == "none" else body.tools or []
    refuse_without_parser(tools, style)
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description or "",
                "parameters": tool.input_schema or {"type": "object", "properties": {}},
            },
        }
        for tool in tools
    ]


def _messages(turn: UserTurn | AssistantTurn | SystemTurn) -> Iterator[Message]:
    """One turn as OpenAI's messages: results of tools are messages of their own, before the rest."""
    match turn:
        case AssistantTurn(content):
            yield _assistant([TextContent(content)] if isinstance(content, str) else content)
        case SystemTurn(content):
            yield {"role": "system", "content": _joined(content)}
        case UserTurn(content):
            results = [] if isinstance(content, str) else [block for block in content if isinstance(block, ToolResult)]
            yield from map(_result, results)
            if not results or len(results) < len(content):
                yield {"role": "user", "content": _joined(content)}


def _assistant(blocks: list[Any]) -> Message:
    calls = [_call(block) for block in blocks if isinstance(block, ToolUse)]
    thoughts = [block.thinking for block in blocks if isinstance(block, ThinkingContent)]
    message: Message = {"role": "assistant", "content": _joined(blocks)}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _call(block: ToolUse) -> Message:
    function = {"name": block.name, "arguments": orjson.dumps(block.input).decode()}
    return {"id": block.id, "type": "function", "function": function}


def _result(block: ToolResult) -> Message:
    text = _joined(block.content or "")
    if block.is_error and not text.startswith("Error"):
        text = f"Error: {text}"  # templates know no other way to tell
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": text}


def _joined(content: str | list[Any], between: str = "") -> str:
    """The text of blocks."""
    return content if isinstance(content, str) else between.join(b.text for b in content if isinstance(b, TextContent))
