"""The body of /v1/responses, and the chat that its items are: messages, function calls, their outputs, reasoning.

Decides what an item becomes, and how it is listed later. Knows no store.
"""

from dataclasses import replace
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, convert, to_builtins

from ramet.ipc.messages import Chat
from ramet.ipc.params import about
from ramet.ipc.spec import Constraint
from ramet.runtime import exact_json
from ramet.runtime.intake import other_servers
from ramet.runtime.intake.chat import Style, chosen_chat
from ramet.runtime.intake.fields import Text, including, unbuilt
from ramet.runtime.intake.limits import MAX_TURNS
from ramet.runtime.intake.media import check_options, has_media, part_source
from ramet.runtime.intake.messages import (
    Function,
    ItemPart,
    MediaPart,
    ParallelCalls,
    RefusalPart,
    TextPart,
    ToolChoice,
)
from ramet.runtime.intake.sampling_fields import UnbuiltHidden
from ramet.runtime.intake.specs import sampled
from ramet.runtime.intake.tool_choice import Calls
from ramet.runtime.media.source import MediaSource
from ramet.runtime.server.openai.formats import ResponseFormat, StructuredFields, of_format
from ramet.runtime.server.openai.responses_replies import OutputItem
from ramet.runtime.server.openai.types import Top


class Item(Struct, frozen=True, tag_field="type"):
    """One without a type is a message."""


class InputMessage(Item, frozen=True, tag="message"):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[ItemPart]


class FunctionCall(Item, frozen=True, tag="function_call"):
    call_id: str
    name: Text
    arguments: str


class FunctionOutput(Item, frozen=True, tag="function_call_output"):
    call_id: str
    output: str | list[ItemPart]


class Reasoning(Item, frozen=True, tag="reasoning"):
    content: list[ItemPart] | None = None


InputItem = InputMessage | FunctionCall | FunctionOutput | Reasoning


class ResponseTool(Function, frozen=True, kw_only=True):
    type: Annotated[Literal["function"], about("OpenAI's own tools run on its servers alone")]


class ReasoningOptions(Struct, frozen=True, kw_only=True):
    effort: Annotated[str | None, about("given to the chat template, with `enable_thinking` (false for `none`)")] = None
    summary: Annotated[str | None, about("accepted; reasoning is returned as it is")] = None


class TextOptions(Struct, frozen=True, kw_only=True):
    format: ResponseFormat = None
    verbosity: Annotated[str | None, about("given to the chat template")] = None


@including((*other_servers.RESPONSES, *other_servers.OF_RESPONSES))
class ResponsesBody(StructuredFields, frozen=True, kw_only=True):
    input: Annotated[
        str | Annotated[list[InputItem], Meta(min_length=1, max_length=MAX_TURNS)],
        about(
            "the user's text, or items: messages (which may leave their type out), calls and their outputs, reasoning"
        ),
    ]
    instructions: Annotated[str | None, about("the system turn; not carried over to a next response")] = None
    previous_response_id: Annotated[str | None, about("the chat goes on where that stored response ended")] = None
    store: Annotated[bool | None, about("whether it can be asked for again and continued; true if it is absent")] = None
    max_output_tokens: Annotated[Any, sampled("max_new_tokens", "to the context's end if it is absent")] = None
    tools: Annotated[list[ResponseTool] | None, about("functions that the model may call")] = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: ParallelCalls = None
    reasoning: Annotated[ReasoningOptions | None, about("`effort`")] = None
    text: Annotated[TextOptions | None, about("`format` and `verbosity`")] = None
    top_logprobs: Annotated[Top | None, about("log-probabilities of this many best tokens at each place")] = None
    include: Annotated[
        list[str] | None, about("`message.output_text.logprobs`: log-probabilities; others are ignored")
    ] = None
    metadata: Annotated[dict[str, Any] | None, about("comes back with the response")] = None
    user: Annotated[str | None, about("accepted; nothing is done with it")] = None
    truncation: Annotated[
        Literal["disabled", "auto"] | None,
        unbuilt("leaving out what does not fit the context; `disabled` is taken", neutral=("disabled",)),
    ] = None
    stop: Annotated[Any, sampled("stop")] = None
    chat_template_kwargs: Annotated[dict[str, Any] | None, about("given to the chat template")] = None
    return_hidden_states: UnbuiltHidden = None
    background: Annotated[bool | None, unbuilt("an answer to ask for later", neutral=(False,))] = None
    conversation: Annotated[str | dict[str, Any] | None, unbuilt("OpenAI's conversations")] = None
    prompt: Annotated[dict[str, Any] | None, unbuilt("OpenAI's stored prompts")] = None

    def constraints(self, place: str = "") -> list[Constraint]:
        return of_format("text.format", self.text.format if self.text else None) + super().constraints(place)


Message = dict[str, Any]


def read_chat(body: ResponsesBody, before: list[Message], style: Style) -> tuple[Chat, Calls]:
    """`before`: the messages of the response that this one follows. Raises ClientError."""
    instructions = [{"role": "system", "content": body.instructions}] if body.instructions else []
    messages = [*instructions, *before, *_messages(body.input, "input")]
    if has_media(messages):
        check_options(body)
    written = {
        "messages": messages,
        "tools": [_tool(tool) for tool in body.tools or ()],
        "reasoning_effort": body.reasoning.effort if body.reasoning is not None else None,
        "verbosity": body.text.verbosity if body.text is not None else None,
        "chat_template_kwargs": body.chat_template_kwargs,
    }
    strict = (tool.name for tool in body.tools or () if tool.strict)
    parallel = body.parallel_tool_calls is not False
    return chosen_chat(written, body.tool_choice, style, strict, parallel, "parameters")


def _tool(tool: ResponseTool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def with_items(written: dict[str, Any]) -> dict[str, Any]:
    """A body whose input is items, as they are listed later: each has a type, and messages have parts."""
    given = written.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    return {**written, "input": list(map(_item, given))} if isinstance(given, list) else written


def _item(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    item = {"type": "message", **given}
    if item["type"] == "message" and isinstance(text := item.get("content"), str):
        of_model = {"type": "output_text", "text": text, "annotations": []}
        item["content"] = [of_model if item.get("role") == "assistant" else {"type": "input_text", "text": text}]
    return item


_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


def listed(response_id: str, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items as a stored response lists them: each has an id, by which OpenAI's client knows what it is."""
    listing = []
    for i, item in enumerate(items):
        made_id = f"{_PREFIXES[item['type']]}_{response_id.removeprefix('resp_')}_{i}"
        own = {name: item[name] for name in ("id", "status") if isinstance(item.get(name), str) and item[name]}
        listing.append({**item, "id": made_id, "status": "completed", **own})
    return listing


def chat_after(before: list[Message], given: str | list[InputItem], output: list[OutputItem]) -> list[Message]:
    """The messages up to a response's end, as the next one reads them: without log-probabilities."""
    items = convert(to_builtins(output, enc_hook=lambda _: []), list[InputItem])
    return [*before, *_messages(given, "input"), *_messages(items, "output")]


def read_stored(messages: bytes) -> list[Message]:
    """What `chat_after` made, from JSON: media are objects there, and the place of one was in a request before."""
    stored: list[Message] = exact_json.loads(messages)
    return [{**each, "content": _restored(each["content"])} for each in stored]


def _restored(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [
        replace(convert(part, MediaSource), place="previous_response_id") if "kind" in part else part
        for part in content
    ]


def _messages(items: str | list[InputItem], place: str) -> list[Message]:
    """What the assistant thought, said and called in one turn is one message."""
    assert not isinstance(items, str), "with_items has made an item of it"
    messages: list[Message] = []
    for i, item in enumerate(items):
        last = messages[-1] if messages and messages[-1]["role"] == "assistant" else None
        match item:
            case InputMessage("assistant", content) if last and not last["content"] and "tool_calls" not in last:
                last["content"] = _text(content)
            case InputMessage(role, content):
                messages.append({"role": role, "content": _content(content, f"{place}[{i}].content")})
            case FunctionCall(call_id, name, arguments):
                if last is None:
                    messages.append(last := {"role": "assistant", "content": ""})
                function = {"name": name, "arguments": arguments}
                call = {"id": call_id, "type": "function", "function": function}
                last.setdefault("tool_calls", []).append(call)
            case FunctionOutput(call_id, output):
                content = _content(output, f"{place}[{i}].output")
                messages.append({"role": "tool", "tool_call_id": call_id, "content": content})
            case Reasoning(content):
                if thought := _text(content or []):
                    messages.append({"role": "assistant", "content": "", "reasoning_content": thought})
    return messages


def _content(content: str | list[ItemPart], place: str) -> str | list[Any]:
    """A text, or with media parts in order."""
    if isinstance(content, str) or not any(isinstance(part, MediaPart) for part in content):
        return _text(content)
    return [
        part_source(f"{place}[{j}]", to_builtins(part)) if isinstance(part, MediaPart) else _text_part(part)
        for j, part in enumerate(content)
    ]


def _text_part(part: ItemPart) -> dict[str, str]:
    return {"type": "text", "text": _text([part])}


def _text(content: str | list[ItemPart]) -> str:
    if isinstance(content, str):
        return content
    known = [part for part in content if isinstance(part, TextPart | RefusalPart)]
    return "".join(part.refusal if isinstance(part, RefusalPart) else part.text for part in known)
