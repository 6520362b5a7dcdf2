"""Anthropic's messages to chats, as the template reads them: content blocks to OpenAI's messages, tools to functions.

Decides what a block becomes. Knows no reply.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from ramet.ipc.messages import Chat
from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.chat import MAX_TURNS, NOT_FORCED, Style, check_most, refuse_without_parser
from ramet.runtime.server.anthropic.types import CountBody, MessagesBody

Message = dict[str, Any]


def read_chat(body: CountBody | MessagesBody, style: Style) -> tuple[Chat, bool]:
    """The chat, and whether more than one call may be told."""
    if not body.messages:
        raise ClientError("messages", "is [], must hold at least one message")
    blocks = sum(len(each["content"]) for each in body.messages if isinstance(each.get("content"), list))
    check_most("messages", "messages and content blocks", len(body.messages) + blocks, MAX_TURNS)
    tools, parallel = _tools(body, style)
    messages = [message for i, each in enumerate(body.messages) for message in _messages(f"messages[{i}]", each)]
    system = _system(body.system)
    chat = Chat(
        [*([{"role": "system", "content": system}] if system else []), *messages],
        tools or None,
        _thinking(body.thinking) | (body.chat_template_kwargs or {}),
        add_generation_prompt=not (goes_on := messages[-1]["role"] == "assistant"),
        continue_final_message=goes_on,
    )
    return chat, parallel


def _tools(body: CountBody | MessagesBody, style: Style) -> tuple[list[dict[str, Any]], bool]:
    choice = {"type": "auto"} if body.tool_choice is None else body.tool_choice
    parallel = choice.get("disable_parallel_tool_use") is not True
    match choice.get("type"):
        case "auto":
            pass
        case "none":
            return [], parallel
        case "any" | "tool":
            raise ClientError("tool_choice", f"is {shown(choice)}, which {NOT_FORCED}", "use auto")
        case other:
            raise ClientError("tool_choice.type", f"is {shown(other)}, must be auto, any, tool or none")
    tools = body.tools or []
    for i, tool in enumerate(tools):
        if tool.type not in (None, "custom"):
            raise ClientError(f"tools[{i}].type", f"is {shown(tool.type)}, must be custom: this server runs no tools")
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
    ], parallel


def _thinking(thinking: dict[str, Any] | None) -> dict[str, Any]:
    match thinking:
        case {"type": "enabled" | "adaptive"}:
            return {"enable_thinking": True}
        case None | {"type": "disabled"}:
            return {"enable_thinking": False}
        case other:
            raise ClientError("thinking.type", f"is {shown(other.get('type'))}, must be enabled, adaptive or disabled")


def _system(system: str | list[dict[str, Any]] | None) -> str:
    """Blocks are paragraphs of it."""
    if system is None or isinstance(system, str):
        return system or ""
    return "\n\n".join(_text(f"system[{i}]", block) for i, block in enumerate(system))


def _messages(place: str, message: Message) -> Iterator[Message]:
    """One turn as OpenAI's messages: results of tools are messages of their own, before the rest."""
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise ClientError(f"{place}.role", f"is {shown(role)}, must be user or assistant")
    if isinstance(content, str):
        yield {"role": role, "content": content}
        return
    if not isinstance(content, list):
        raise ClientError(f"{place}.content", f"is {shown(content)}, must be a string or a list of content blocks")
    blocks = [(f"{place}.content[{i}]", block) for i, block in enumerate(content)]
    for at, block in blocks:
        if not isinstance(block, dict):
            raise ClientError(at, f"is {shown(block)}, must be a content block")
    yield from (_assistant(blocks) if role == "assistant" else _user(role, blocks))


def _user(role: str, blocks: list[tuple[str, Message]]) -> Iterator[Message]:
    texts = []
    for at, block in blocks:
        if block.get("type") == "tool_result":
            yield _result(at, block)
        else:
            texts.append(_text(at, block))
    if texts or not blocks:
        yield {"role": role, "content": "".join(texts)}


def _assistant(blocks: list[tuple[str, Message]]) -> Iterator[Message]:
    texts, thoughts, calls = list[str](), list[str](), list[Message]()
    for at, block in blocks:
        match block.get("type"):
            case "tool_use":
                calls.append(_call(at, block))
            case "thinking":
                thoughts.append(_string(f"{at}.thinking", block.get("thinking")))
            case "redacted_thinking":
                pass  # its words were never known
            case _:
                texts.append(_text(at, block))
    message: Message = {"role": "assistant", "content": "".join(texts)}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    yield message


def _call(at: str, block: Message) -> Message:
    arguments = block.get("input")
    if not isinstance(arguments, dict):
        raise ClientError(f"{at}.input", f"is {shown(arguments)}, must be an object")
    name = _string(f"{at}.name", block.get("name"))
    function = {"name": name, "arguments": orjson.dumps(arguments).decode()}
    return {"id": _string(f"{at}.id", block.get("id")), "type": "function", "function": function}


def _result(at: str, block: Message) -> Message:
    content = block.get("content")
    match content:
        case None:
            text = ""
        case str():
            text = content
        case list():
            text = "".join(_text(f"{at}.content[{i}]", each) for i, each in enumerate(content))
        case other:
            raise ClientError(f"{at}.content", f"is {shown(other)}, must be a string or a list of text blocks")
    if block.get("is_error") is True and not text.startswith("Error"):
        text = f"Error: {text}"  # templates know no other way to tell
    return {"role": "tool", "tool_call_id": _string(f"{at}.tool_use_id", block.get("tool_use_id")), "content": text}


def _text(at: str, block: Any) -> str:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise ClientError(at, f"is {shown(block)}, must be a content block with a type")
    if block["type"] != "text":
        raise ClientError(f"{at}.type", f"is {shown(block['type'])}, must be text here", "this model reads text only")
    return _string(f"{at}.text", block.get("text"))


def _string(at: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ClientError(at, f"is {shown(value)}, must be a string")
    return value
