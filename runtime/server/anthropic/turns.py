"""Turns of Anthropic's content blocks as OpenAI's messages. Decides what a block becomes."""

from collections.abc import Iterator
from typing import Any

from ramet.ipc.media import MediaKind
from ramet.runtime import exact_json
from ramet.runtime.media.source import MediaSource
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


def messages_of(turn: AnyTurn, place: str) -> Iterator[Message]:
    """The messages of one turn. Tool results are messages of their own, before the rest. `place`: its content."""
    content: Any = turn.content
    if content.__class__ is str:  # a chat may have thousands of them
        yield {"role": turn.__struct_config__.tag, "content": content}
        return
    match turn:
        case AssistantTurn():
            yield from _assistant(content)
        case SystemTurn():
            yield {"role": "system", "content": joined_text(content)}
        case UserTurn():
            results = [(j, block) for j, block in enumerate(content) if isinstance(block, ToolResult)]
            for j, block in results:
                yield _result(block, f"{place}[{j}].content")
            if not results or len(results) < len(content):
                yield {"role": "user", "content": _content(content, place)}


def _assistant(blocks: list[Any]) -> Iterator[Message]:
    """The result of a tool that a server ran ends a turn, and another turn begins after it."""
    ran = {block.tool_use_id for block in blocks if isinstance(block, RAN)}
    said: list[Any] = []
    has_begun = False
    for block in blocks:
        if isinstance(block, RAN):
            if said:
                yield _said(said, ran)
            yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": _came_back(block)}
            said, has_begun = [], True
        else:
            said.append(block)
    if said or not has_begun:
        yield _said(said, ran)


def _said(blocks: list[Any], ran: set[str]) -> Message:
    """`ran`: ids of calls whose results can be read."""
    calls = [_call(block) for block in blocks if isinstance(block, ToolUse) and _is_read(block, ran)]
    thoughts = [block.thinking for block in blocks if isinstance(block, ThinkingContent)]
    message: Message = {"role": "assistant", "content": joined_text(blocks)}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _is_read(block: ToolUse, ran: set[str]) -> bool:
    return block.id in ran or not isinstance(block, ServerToolUse | McpToolUse)


def _call(block: ToolUse) -> Message:
    function = {"name": block.name, "arguments": block.input}
    return {"id": block.id, "type": "function", "function": function}


def _came_back(block: ServerResult) -> str:
    if not isinstance(block, McpToolResult):
        return exact_json.dumps(block.content, ensure_ascii=False)
    text = joined_text(block.content or "")
    return f"Error: {text}" if block.is_error and not text.startswith("Error") else text


def _result(block: ToolResult, place: str) -> Message:
    content = _content(block.content or "", place)
    if block.is_error and not joined_text(block.content or "").startswith("Error"):  # templates show no errors
        content = f"Error: {content}" if isinstance(content, str) else [_part("Error: "), *content]
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}


def _content(content: str | list[Any], place: str) -> str | list[Any]:
    """The joined texts, or a list of parts in order if there are images."""
    if isinstance(content, str) or not any(isinstance(block, ImageContent) for block in content):
        return joined_text(content)
    return [
        MediaSource(MediaKind.IMAGE, f"{place}[{j}].source", block.written)
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
    if block.__class__ is TextContent:  # isinstance takes ten times as long, and there may be thousands
        return str(block.text)
    match block:
        case SearchResult():
            return block.text
        case Compaction(content):
            return content or ""
    return ""
