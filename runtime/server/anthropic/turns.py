"""Turns of Anthropic's content blocks as OpenAI's messages. Decides what a block becomes."""

from typing import Any

from ramet.ipc.media import MediaKind
from ramet.runtime import exact_json
from ramet.runtime.media.source import GivenMedia
from ramet.runtime.server.anthropic.blocks import (
    AnyTurn,
    AssistantTurn,
    BashResult,
    CodeResult,
    Compaction,
    EditorResult,
    ImageContent,
    McpToolResult,
    McpToolUse,
    SearchResult,
    ServerResult,
    ServerToolUse,
    SystemTurn,
    TextContent,
    ThinkingContent,
    ToolResult,
    ToolUse,
    UserTurn,
)

Message = dict[str, Any]
RAN = (McpToolResult, CodeResult, BashResult, EditorResult)
ROLES: dict[type, str] = {UserTurn: "user", AssistantTurn: "assistant", SystemTurn: "system"}
RUN_BY_SERVERS: frozenset[type] = frozenset({ServerToolUse, McpToolUse})


def messages_of(turn: AnyTurn, index: int) -> list[Message]:
    """The messages of one turn. Tool results are messages of their own, before the rest. `index`: of the turn."""
    content: Any = turn.content
    role = ROLES[turn.__class__]
    if content.__class__ is str:
        return [{"role": role, "content": content}]
    if role == "assistant":
        return _assistant(content)
    if role == "system":
        return [{"role": role, "content": joined_text(content)}]
    messages = [_result(block, index, j) for j, block in enumerate(content) if block.__class__ is ToolResult]
    if not messages or len(messages) < len(content):
        messages.append({"role": "user", "content": _content(content, index)})
    return messages


def _assistant(blocks: list[Any]) -> list[Message]:
    """The result of a tool that a server ran ends a turn, and another turn begins after it."""
    if {*map(type, blocks)}.isdisjoint(RAN):  # as in most chats, which may have thousands of blocks
        return [_said(blocks, set())]
    ran = {block.tool_use_id for block in blocks if isinstance(block, RAN)}
    messages: list[Message] = []
    said: list[Any] = []
    for block in blocks:
        if isinstance(block, RAN):
            if said:
                messages.append(_said(said, ran))
            messages.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": _came_back(block)})
            said = []
        else:
            said.append(block)
    if said:
        messages.append(_said(said, ran))
    return messages


def _said(blocks: list[Any], ran: set[str]) -> Message:
    """`ran`: ids of calls that a server ran and whose results can be read."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Message] = []
    for block in blocks:
        kind = block.__class__
        if kind is ToolUse or (kind in RUN_BY_SERVERS and block.id in ran):
            calls.append(_call(block))
        elif kind is ThinkingContent:
            thoughts.append(block.thinking)
        else:
            texts.append(_text(block))
    message: Message = {"role": "assistant", "content": "".join(texts)}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _call(block: ToolUse) -> Message:
    function = {"name": block.name, "arguments": block.input}
    return {"id": block.id, "type": "function", "function": function}


def _came_back(block: ServerResult) -> str:
    if not isinstance(block, McpToolResult):
        return exact_json.dumps(block.content, ensure_ascii=False)
    text = joined_text(block.content or "")
    return f"Error: {text}" if block.is_error and not text.startswith("Error") else text


def _result(block: ToolResult, *at: int) -> Message:
    content = _content(block.content or "", *at)
    if block.is_error and not joined_text(block.content or "").startswith("Error"):  # templates show no errors
        content = f"Error: {content}" if isinstance(content, str) else [_part("Error: "), *content]
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}


def _content(content: str | list[Any], *at: int) -> str | list[Any]:
    """The joined texts, or a list of parts in order if there are images. `at`: the indices of the turn and, of what a
    block has, of the block.
    """
    if isinstance(content, str) or ImageContent not in set(map(type, content)):
        return joined_text(content)
    place = "messages" + "".join([f"[{index}].content" for index in at])
    return [
        GivenMedia(MediaKind.IMAGE, f"{place}[{j}].source", block.written)
        if isinstance(block, ImageContent)
        else _part(_text(block))
        for j, block in enumerate(content)
        if isinstance(block, ImageContent) or _text(block)
    ]


def _part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def joined_text(content: str | list[Any], between: str = "") -> str:
    """The joined text of all blocks."""
    return content if isinstance(content, str) else between.join(filter(None, map(_text, content)))


def _text(block: Any) -> str:
    kind = block.__class__
    if kind is TextContent or kind is SearchResult:
        return str(block.text)
    return block.content or "" if kind is Compaction else ""
