"""Items of /v1/responses to chats, as the template reads them: messages, function calls, their outputs, reasoning.

Decides what an item becomes, and how it is listed later. Knows no reply and no store.
"""

from typing import Any

from ramet.ipc.messages import Chat
from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.chat import MAX_TURNS, Style, check_most, refuse_without_parser
from ramet.runtime.server.openai.responses_types import ResponsesBody
from ramet.runtime.server.openai.steering import callable_tools, template_kwargs

Message = dict[str, Any]
Item = dict[str, Any]


def read_chat(body: ResponsesBody, before: list[Message], style: Style) -> Chat:
    """`before`: the messages of the response that this one follows."""
    instructions = [{"role": "system", "content": body.instructions}] if body.instructions else []
    kwargs = template_kwargs(
        body.reasoning.effort if body.reasoning is not None else None,
        body.text.verbosity if body.text is not None else None,
    )
    messages = [*instructions, *before, *read_items(items_of(body.input))]
    return Chat(messages, _tools(body, style) or None, kwargs | (body.chat_template_kwargs or {}))


def items_of(given: Any) -> list[Item]:
    """The input as items."""
    if not isinstance(given, str | list):
        raise ClientError("input", f"is {shown(given)}, must be a string or a list of items")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    if not given:
        raise ClientError("input", "is [], must hold at least one item")
    check_most("input", "items", len(given), MAX_TURNS)
    for i, item in enumerate(given):
        if not isinstance(item, dict):
            raise ClientError(f"input[{i}]", f"is {shown(item)}, must be an item")
    return given


_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


def listed(response_id: str, items: list[Item]) -> list[Item]:
    """Items as a stored response lists them: each has an id, by which OpenAI's client tells what it is."""
    listing = []
    for i, item in enumerate(items):
        kind = item.get("type", "message")
        made_id = f"{_PREFIXES[kind]}_{response_id.removeprefix('resp_')}_{i}"
        told = {**item, "type": kind, "id": made_id, "status": "completed"}
        told |= {name: item[name] for name in ("id", "status") if isinstance(item.get(name), str) and item[name]}
        if kind == "message":
            told["content"] = _listed_content(item)
        listing.append(told)
    return listing


def _listed_content(item: Item) -> list[Any]:
    content = item.get("content")
    if not isinstance(content, str):
        return list(content or ())
    if item.get("role") == "assistant":
        return [{"type": "output_text", "text": content, "annotations": []}]
    return [{"type": "input_text", "text": content}]


def read_items(items: list[Item]) -> list[Message]:
    """Messages: what the assistant thought, said and called in one turn is one of them."""
    messages: list[Message] = []
    for i, item in enumerate(items):
        place = f"input[{i}]"
        match item.get("type", "message"):
            case "message":
                _add_message(messages, place, item)
            case "function_call":
                function = {name: _string(f"{place}.{name}", item.get(name)) for name in ("name", "arguments")}
                call = {
                    "id": _string(f"{place}.call_id", item.get("call_id")),
                    "type": "function",
                    "function": function,
                }
                _turn(messages).setdefault("tool_calls", []).append(call)
            case "function_call_output":
                text = _content(f"{place}.output", item.get("output"))
                call_id = _string(f"{place}.call_id", item.get("call_id"))
                messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
            case "reasoning":
                if thought := "".join(_parts(f"{place}.content", item.get("content") or [])):
                    messages.append({"role": "assistant", "content": "", "reasoning_content": thought})
            case other:
                valid = "message, function_call, function_call_output or reasoning"
                raise ClientError(f"{place}.type", f"is {shown(other)}, must be {valid}")
    return messages


def _add_message(messages: list[Message], place: str, item: Item) -> None:
    role = item.get("role")
    if role not in ("user", "assistant", "system", "developer"):
        raise ClientError(f"{place}.role", f"is {shown(role)}, must be user, assistant, system or developer")
    text = _content(f"{place}.content", item.get("content"))
    if role == "assistant" and messages and _only_thought(messages[-1]):
        messages[-1]["content"] = text
    else:
        messages.append({"role": role, "content": text})


def _only_thought(message: Message) -> bool:
    return message["role"] == "assistant" and not message["content"] and "tool_calls" not in message


def _turn(messages: list[Message]) -> Message:
    """The assistant's turn that a call belongs to."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]


def _content(place: str, content: Any) -> str:
    return content if isinstance(content, str) else "".join(_parts(place, content))


def _parts(place: str, parts: Any) -> list[str]:
    if not isinstance(parts, list):
        raise ClientError(place, f"is {shown(parts)}, must be a string or a list of text parts")
    return [_part(f"{place}[{i}]", part) for i, part in enumerate(parts)]


def _part(place: str, part: Any) -> str:
    match part:
        case {"type": "input_text" | "output_text" | "text" | "reasoning_text", "text": str() as text}:
            return text
        case {"type": "refusal", "refusal": str() as text}:
            return text
        case {"type": "input_image" | "input_file" | "input_audio" as kind}:
            raise ClientError(f"{place}.type", f"is {kind!r}, must be input_text: this model reads text only")
        case other:
            raise ClientError(place, f"is {shown(other)}, must be a part such as input_text with its text")


def _string(place: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ClientError(place, f"is {shown(value)}, must be a string")
    return value


def _tools(body: ResponsesBody, style: Style) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    for i, tool in enumerate(body.tools or ()):
        if tool.type != "function":
            raise ClientError(f"tools[{i}].type", f"is {shown(tool.type)}, must be function: this server runs no tools")
        if tool.name is None:
            raise ClientError(f"tools[{i}].name", "is missing, must be a string")
        function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        tools.append({"type": "function", "function": {k: v for k, v in function.items() if v is not None}})
    names = callable_tools(body.tool_choice, [tool["function"]["name"] for tool in tools])
    refuse_without_parser(names, style)
    return [tool for tool in tools if tool["function"]["name"] in names]
