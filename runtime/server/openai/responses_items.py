"""The items of a response's input, and the messages of a chat that they are.

Decides what an item becomes. Calls of tools that the client ran, and their outputs, are calls and results whatever the
tool is. So are tools that a provider's servers ran, if the item has their result. Other items about what such a server
did are ignored. Knows no store.
"""

from typing import TYPE_CHECKING, Any, Literal, Union, get_args

from msgspec import Struct, defstruct, field, to_builtins

from ramet.runtime import exact_json
from ramet.runtime.intake.fields import Text
from ramet.runtime.intake.media import part_source
from ramet.runtime.intake.messages import (
    InputImagePart,
    InputTextPart,
    ItemPart,
    MediaPart,
    OutputTextPart,
    ReasoningPart,
    RefusalPart,
    TextPart,
)

Message = dict[str, Any]
Output = str | list[ItemPart]
Arguments = str | dict[str, Any]
MEDIA = frozenset(get_args(MediaPart))
TEXTS = frozenset({TextPart, InputTextPart, OutputTextPart, ReasoningPart})
BETWEEN_NAMES = "__"  # stands between a namespace and the name of its function


class Item(Struct, frozen=True, tag_field="type"):
    """An item of the input. An item without a type is a message."""


class InputMessage(Item, frozen=True, tag="message"):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[ItemPart]


class SummaryText(Struct, frozen=True, tag_field="type", tag="summary_text"):
    text: str


class Reasoning(Item, frozen=True, tag="reasoning"):
    content: list[ItemPart] | None = None
    summary: list[SummaryText] | None = None  # used if there is no content


# -- calls that the client ran, and their outputs ----------------------------------------------------------------------


class FunctionCall(Item, frozen=True, tag="function_call"):
    call_id: str
    name: Text
    arguments: str
    group: str | None = field(default=None, name="namespace")


class FunctionOutput(Item, frozen=True, tag="function_call_output"):
    call_id: str
    output: Output


class CustomCall(Item, frozen=True, tag="custom_tool_call"):
    call_id: str
    name: Text
    input: str


class CustomOutput(FunctionOutput, frozen=True, tag="custom_tool_call_output"):
    pass


class LocalShellCall(Item, frozen=True, tag="local_shell_call"):
    action: dict[str, Any]
    call_id: str | None = None
    id: str | None = None


class LocalShellOutput(Item, frozen=True, tag="local_shell_call_output"):
    output: str
    call_id: str | None = None
    id: str | None = None  # the call's id, in OpenAI's own form


class ShellCall(Item, frozen=True, tag="shell_call"):
    call_id: str
    action: dict[str, Any]


class ShellOutput(Item, frozen=True, tag="shell_call_output"):
    call_id: str
    output: str | list[dict[str, Any]]


class PatchCall(Item, frozen=True, tag="apply_patch_call"):
    call_id: str
    operation: dict[str, Any]


class PatchOutput(Item, frozen=True, tag="apply_patch_call_output"):
    call_id: str
    output: str | None = None
    status: str | None = None


class ComputerCall(Item, frozen=True, tag="computer_call"):
    call_id: str
    action: dict[str, Any] | None = None
    actions: list[dict[str, Any]] | None = None


class Screenshot(Struct, frozen=True):
    image_url: Text | None = None


class ComputerOutput(Item, frozen=True, tag="computer_call_output"):
    call_id: str
    output: Screenshot


# -- what a provider's servers ran -------------------------------------------------------------------------------------


class McpCall(Item, frozen=True, tag="mcp_call"):
    id: str
    name: Text
    arguments: str
    output: str | None = None
    error: Any = None


class CodeCall(Item, frozen=True, tag="code_interpreter_call"):
    id: str
    code: str | None = None
    outputs: list[dict[str, Any]] | None = None


class PassedOver(Item, frozen=True):
    """An item without anything that a model could read."""


PASSED_OVER = (
    "web_search_call", "file_search_call", "image_generation_call", "tool_search_call", "tool_search_output",
    "mcp_list_tools", "mcp_approval_request", "mcp_approval_response",
)  # fmt: skip
if TYPE_CHECKING:
    Others = PassedOver
else:
    Others = Union[  # noqa: UP007
        tuple(
            defstruct(tag.title().replace("_", "") + "Item", (), bases=(PassedOver,), tag=tag, frozen=True)
            for tag in PASSED_OVER
        )
    ]
ClientCall = FunctionCall | CustomCall | LocalShellCall | ShellCall | PatchCall | ComputerCall
ClientOutput = FunctionOutput | CustomOutput | LocalShellOutput | ShellOutput | PatchOutput | ComputerOutput
CALLS, OUTPUTS = frozenset(get_args(ClientCall)), frozenset(get_args(ClientOutput))
InputItem = InputMessage | Reasoning | ClientCall | ClientOutput | McpCall | CodeCall | Others


# -- as messages -------------------------------------------------------------------------------------------------------


def messages_of(items: list[InputItem], place: str) -> list[Message]:
    """The thought, text and calls of one turn of the assistant become one message. `place`: the field of the items."""
    messages: list[Message] = []
    thinking: list[Message] = []  # messages whose thoughts are still lists: joined once, at the end
    for i, item in enumerate(items):
        if item.__class__ is Reasoning and not (thought := _thought(item)):
            continue
        last = messages[-1] if messages and messages[-1]["role"] == "assistant" else None
        if item.__class__ is InputMessage and item.content.__class__ is str and (not last or item.role != "assistant"):
            messages.append({"role": item.role, "content": item.content})  # a chat may have thousands of them
            continue
        known: Any = item  # by its class: comparing it with the classes of all kinds takes longer
        if item.__class__ in CALLS:
            _add_call(messages, last, *_called(known))
            continue
        if item.__class__ in OUTPUTS:
            call_id, output = _came_back(known)
            messages.append(_result(call_id, _content(output, f"{place}[{i}].output")))
            continue
        match item:
            case InputMessage("assistant", content) if last and not last["content"] and "tool_calls" not in last:
                last["content"] = text_of(content)
            case InputMessage(role, content):
                messages.append({"role": role, "content": _content(content, f"{place}[{i}].content")})
            case Reasoning():
                _think(messages, last, thought, thinking)
            case McpCall(call_id) | CodeCall(call_id):
                _add_call(messages, last, *_called(item))
                messages.append(_result(call_id, _ran(item)))
    for message in thinking:
        message["reasoning_content"] = "\n\n".join(message["reasoning_content"])
    return messages


def _think(messages: list[Message], last: Message | None, thought: str, thinking: list[Message]) -> None:
    """A thought begins a new turn, unless the last turn consists of a thought alone."""
    if last is None or last["content"] or "tool_calls" in last:
        messages.append(last := {"role": "assistant", "content": ""})
    if "reasoning_content" not in last:
        last["reasoning_content"] = []
        thinking.append(last)
    last["reasoning_content"].append(thought)


def _add_call(messages: list[Message], last: Message | None, call_id: str, name: str, arguments: Arguments) -> None:
    if last is None:
        messages.append(last := {"role": "assistant", "content": ""})
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    last.setdefault("tool_calls", []).append(call)


def _result(call_id: str, content: str | list[Any]) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def _called(item: ClientCall | McpCall | CodeCall) -> tuple[str, str, Arguments]:
    """The call's id, the tool's name and the arguments: an object, or JSON of one."""
    match item:
        case FunctionCall(call_id, name, arguments, group):
            return call_id, full_name(group, name), arguments
        case CustomCall(call_id, name, given):
            return call_id, name, {"input": given}
        case LocalShellCall(action, call_id, own_id):
            return call_id or own_id or "", "local_shell", _without_nulls(action)
        case ShellCall(call_id, action):
            return call_id, "shell", _without_nulls(action)
        case PatchCall(call_id, operation):
            return call_id, "apply_patch", _without_nulls(operation)
        case ComputerCall(call_id, action, actions):
            return call_id, "computer", action if action is not None else {"actions": actions or []}
        case McpCall(own_id, name, arguments):
            return own_id, name, arguments
        case CodeCall(own_id, code):
            return own_id, "code_interpreter", {"code": code or ""}


def _came_back(item: ClientOutput) -> tuple[str, Output]:
    """The call's id and its output."""
    match item:
        case FunctionOutput(call_id, output):
            return call_id, output
        case LocalShellOutput(output, call_id, own_id):
            return call_id or own_id or "", output
        case ShellOutput(call_id, output):
            return call_id, output if isinstance(output, str) else "\n".join(_each_as_json(output))
        case PatchOutput(call_id, output, status):
            return call_id, output or status or ""
        case ComputerOutput(call_id, Screenshot(image_url)):
            return call_id, "" if image_url is None else [InputImagePart(image_url=image_url)]


def _ran(item: McpCall | CodeCall) -> str:
    """The result of a call that a server ran."""
    match item:
        case McpCall(output=output, error=error):
            return output or (_json({"error": error}) if error else "")
        case CodeCall(outputs=outputs):
            unlogged = iter(_each_as_json([each for each in outputs or () if not each.get("logs")]))
            return "\n".join(str(each.get("logs") or next(unlogged)) for each in outputs or ())


def full_name(group: str | None, name: str) -> str:
    """The name by which the model calls a function. `group`: its namespace, if any."""
    return f"{group}{BETWEEN_NAMES}{name}" if group else name


def _json(value: Any) -> str:
    return exact_json.dumps(value, ensure_ascii=False)


def _each_as_json(values: list[dict[str, Any]]) -> list[str]:
    return exact_json.dumps_each(values, ensure_ascii=False)


def _without_nulls(action: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in action.items() if value is not None}


# -- contents ----------------------------------------------------------------------------------------------------------


def _content(content: Output, place: str) -> str | list[Any]:
    """A text, or a list of parts in order if there are media."""
    if isinstance(content, str) or MEDIA.isdisjoint(map(type, content)):
        return text_of(content)
    return [
        part_source(f"{place}[{j}]", to_builtins(part)) if type(part) in MEDIA else _text_part(part)
        for j, part in enumerate(content)
    ]


def _text_part(part: ItemPart) -> dict[str, str]:
    return {"type": "text", "text": text_of([part])}


def text_of(content: Output) -> str:
    if isinstance(content, str):
        return content
    return "".join([_text_in(part) for part in content])


def _text_in(part: Any) -> str:
    kind = type(part)  # isinstance takes ten times as long, and there may be thousands
    text: str = part.text if kind in TEXTS else part.refusal if kind is RefusalPart else ""
    return text


def _thought(item: Reasoning) -> str:
    written = text_of(item.content) if item.content else ""  # there may be thousands that have neither
    return written or ("\n\n".join([part.text for part in item.summary]) if item.summary else "")
