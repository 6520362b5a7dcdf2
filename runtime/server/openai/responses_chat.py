"""Items of /v1/responses to chats, as the template reads them: messages, function calls, their outputs, reasoning.

Decides what an item becomes, and how it is listed later. Knows no reply and no store.
"""

from typing import Any

import msgspec

from ramet.ipc.messages import Chat
from ramet.runtime.intake.chat import Style, callable_tools, chat_of, refuse_without_parser
from ramet.runtime.intake.messages import RefusalPart, TextPart
from ramet.runtime.server.openai.responses_types import (
    FunctionCall,
    FunctionOutput,
    InputItem,
    InputMessage,
    Parts,
    Reasoning,
    ResponsesBody,
    ResponseTool,
)

Message = dict[str, Any]
Item = dict[str, Any]


def read_chat(body: ResponsesBody, before: list[Message], style: Style) -> Chat:
    """`before`: the messages of the response that this one follows."""
    names = callable_tools(body.tool_choice, [tool.name for tool in body.tools or ()])
    refuse_without_parser(names, style)
    instructions = [{"role": "system", "content": body.instructions}] if body.instructions else []
    written = {
        "messages": [*instructions, *before, *read_input(body.input)],
        "tools": [_tool(tool) for tool in body.tools or ()],
        "reasoning_effort": body.reasoning.effort if body.reasoning is not None else None,
        "verbosity": body.text.verbosity if body.text is not None else None,
        "chat_template_kwargs": body.chat_template_kwargs,
    }
    return chat_of(written, names)


def with_items(written: dict[str, Any]) -> dict[str, Any]:
    """A body whose input is items, as they are listed later: each has a type, and those with content have parts."""
    given = written.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        return written
    return {**written, "input": [_with_parts({"type": "message", **i}) if isinstance(i, dict) else i for i in given]}


def _with_parts(item: Item) -> Item:
    content = item.get("content")
    if not isinstance(content, str) or item["type"] != "message":
        return item
    if item.get("role") == "assistant":
        return {**item, "content": [{"type": "output_text", "text": content, "annotations": []}]}
    return {**item, "content": [{"type": "input_text", "text": content}]}


_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


def listed(response_id: str, items: list[Item]) -> list[Item]:
    """Items as a stored response lists them: each has an id, by which OpenAI's client knows what it is."""
    listing = []
    for i, item in enumerate(items):
        made_id = f"{_PREFIXES[item['type']]}_{response_id.removeprefix('resp_')}_{i}"
        own = {name: item[name] for name in ("id", "status") if isinstance(item.get(name), str) and item[name]}
        listing.append({**item, "id": made_id, "status": "completed", **own})
    return listing


def read_output(items: list[Item]) -> list[Message]:
    """What a response said, as the next one reads it."""
    return read_input(msgspec.convert(items, list[InputItem]))


def read_input(given: str | list[InputItem]) -> list[Message]:
    """Messages: what the assistant thought, said and called in one turn is one of them."""
    assert not isinstance(given, str), "with_items has made an item of it"
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
    known = [part for part in content if isinstance(part, TextPart | RefusalPart)]
    return "".join(part.refusal if isinstance(part, RefusalPart) else part.text for part in known)


def _tool(tool: ResponseTool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}
