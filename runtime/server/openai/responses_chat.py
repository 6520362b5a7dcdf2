"""Items of /v1/responses to chats, as the template reads them: messages, function calls, their outputs, reasoning.

Decides what an item becomes, and how it is listed later. Knows no reply and no store.
"""

from typing import Any

import msgspec

from ramet.ipc.messages import Chat
from ramet.runtime.intake.chat import Style, callable_tools, refuse_without_parser, template_kwargs
from ramet.runtime.intake.messages import Refusal, TextPart
from ramet.runtime.server.openai.responses_types import (
    FunctionCall,
    FunctionOutput,
    InputItem,
    InputMessage,
    Parts,
    Reasoning,
    ResponsesBody,
)

Message = dict[str, Any]
Item = dict[str, Any]


def read_chat(body: ResponsesBody, before: list[Message], style: Style) -> Chat:
    """`before`: the messages of the response that this one follows."""
    instructions = [{"role": "system", "content": body.instructions}] if body.instructions else []
    kwargs = template_kwargs(
        body.reasoning.effort if body.reasoning is not None else None,
        body.text.verbosity if body.text is not None else None,
    )
    messages = [*instructions, *before, *read_input(body.input)]
    return Chat(messages, _tools(body, style) or None, kwargs | (body.chat_template_kwargs or {}))


def with_types(written: dict[str, Any]) -> dict[str, Any]:
    """A body whose items all have a type."""
    given = written.get("input")
    if not isinstance(given, list):
        return written
    return {**written, "input": [{"type": "message", **item} if isinstance(item, dict) else item for item in given]}


def as_items(given: str | list[Item]) -> list[Item]:
    """An input as it is listed later."""
    if isinstance(given, list):
        return given
    return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]


_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


def listed(response_id: str, items: list[Item]) -> list[Item]:
    """Items as a stored response lists them: each has an id, by which OpenAI's client tells what it is."""
    listing = []
    for i, item in enumerate(items):
        kind = item["type"]
        made_id = f"{_PREFIXES[kind]}_{response_id.removeprefix('resp_')}_{i}"
        told = {**item, "id": made_id, "status": "completed"}
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


def read_output(items: list[Item]) -> list[Message]:
    """What a response said, as the next one reads it."""
    return read_input(msgspec.convert(items, list[InputItem]))


def read_input(given: str | list[InputItem]) -> list[Message]:
    """Messages: what the assistant thought, said and called in one turn is one of them."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    messages: list[Message] = []
    for item in given:
        match item:
            case InputMessage(role, content):
                _add_message(messages, role, _text(content))
            case FunctionCall(call_id, name, arguments):
                function = {"name": name, "arguments": arguments}
                call = {"id": call_id, "type": "function", "function": function}
                _turn(messages).setdefault("tool_calls", []).append(call)
            case FunctionOutput(call_id, output):
                messages.append({"role": "tool", "tool_call_id": call_id, "content": _text(output)})
            case Reasoning(content):
                if thought := _text(content or []):
                    messages.append({"role": "assistant", "content": "", "reasoning_content": thought})
    return messages


def _add_message(messages: list[Message], role: str, text: str) -> None:
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


def _text(content: str | Parts) -> str:
    if isinstance(content, str):
        return content
    known = [part for part in content if isinstance(part, TextPart | Refusal)]
    return "".join(part.refusal if isinstance(part, Refusal) else part.text for part in known)


def _tools(body: ResponsesBody, style: Style) -> list[dict[str, Any]]:
    names = callable_tools(body.tool_choice, [tool.name for tool in body.tools or ()])
    refuse_without_parser(names, style)
    functions = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in body.tools or ()
        if tool.name in names
    ]
    return [
        {"type": "function", "function": {k: v for k, v in function.items() if v is not None}} for function in functions
    ]
