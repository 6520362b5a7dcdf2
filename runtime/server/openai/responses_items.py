"""The items of a response's input, and the messages of a chat that they are.

Decides what an item becomes. Calls of tools that the client ran, and their outputs, are calls and results whatever the
tool is. So are tools that a provider's servers ran, if the item has their result. Other items about what such a server
did are ignored. Knows no store.
"""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union, get_args

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
from ramet.runtime.media.source import GivenMedia

Message = dict[str, Any]
Output = str | list[ItemPart]
Arguments = str | dict[str, Any]
MEDIA = frozenset(get_args(MediaPart))
TEXTS = frozenset({TextPart, InputTextPart, OutputTextPart, ReasoningPart})
BETWEEN_NAMES = "__"  # stands between a namespace and the name of its function


class TypedItem(Struct, frozen=True, tag_field="type"):
    """An item of the input. An item without a type is a message."""


class InputMessage(TypedItem, frozen=True, tag="message"):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[ItemPart]


class SummaryText(Struct, frozen=True, tag_field="type", tag="summary_text"):
    text: str


class Reasoning(TypedItem, frozen=True, tag="reasoning"):
    content: list[ItemPart] | None = None
    summary: list[SummaryText] | None = None  # used if there is no content


# -- calls that the client ran, and their outputs ----------------------------------------------------------------------


class FunctionCall(TypedItem, frozen=True, tag="function_call"):
    call_id: str
    name: Text
    arguments: str
    group: str | None = field(default=None, name="namespace")


class FunctionOutput(TypedItem, frozen=True, tag="function_call_output"):
    call_id: str
    output: Output


class CustomCall(TypedItem, frozen=True, tag="custom_tool_call"):
    call_id: str
    name: Text
    input: str


class CustomOutput(FunctionOutput, frozen=True, tag="custom_tool_call_output"):
    pass


class LocalShellCall(TypedItem, frozen=True, tag="local_shell_call"):
    action: dict[str, Any]
    call_id: str | None = None
    id: str | None = None


class LocalShellOutput(TypedItem, frozen=True, tag="local_shell_call_output"):
    output: str
    call_id: str | None = None
    id: str | None = None  # the call's id, in OpenAI's own form


class ShellCall(TypedItem, frozen=True, tag="shell_call"):
    call_id: str
    action: dict[str, Any]


class ShellOutput(TypedItem, frozen=True, tag="shell_call_output"):
    call_id: str
    output: str | list[dict[str, Any]]


class PatchCall(TypedItem, frozen=True, tag="apply_patch_call"):
    call_id: str
    operation: dict[str, Any]


class PatchOutput(TypedItem, frozen=True, tag="apply_patch_call_output"):
    call_id: str
    output: str | None = None
    status: str | None = None


class ComputerCall(TypedItem, frozen=True, tag="computer_call"):
    call_id: str
    action: dict[str, Any] | None = None
    actions: list[dict[str, Any]] | None = None


class Screenshot(Struct, frozen=True):
    image_url: Text | None = None


class ComputerOutput(TypedItem, frozen=True, tag="computer_call_output"):
    call_id: str
    output: Screenshot


# -- what a provider's servers ran -------------------------------------------------------------------------------------


class McpCall(TypedItem, frozen=True, tag="mcp_call"):
    id: str
    name: Text
    arguments: str
    output: str | None = None
    error: Any = None


class CodeCall(TypedItem, frozen=True, tag="code_interpreter_call"):
    id: str
    code: str | None = None
    outputs: list[dict[str, Any]] | None = None


class PassedOverItem(TypedItem, frozen=True):
    """An item without anything that a model could read."""


PASSED_OVER = (
    "web_search_call", "file_search_call", "image_generation_call", "tool_search_call", "tool_search_output",
    "mcp_list_tools", "mcp_approval_request", "mcp_approval_response",
)  # fmt: skip
if TYPE_CHECKING:
    Others = PassedOverItem
else:
    Others = Union[  # noqa: UP007
        tuple(
            defstruct(tag.title().replace("_", "") + "Item", (), bases=(PassedOverItem,), tag=tag, frozen=True)
            for tag in PASSED_OVER
        )
    ]
ClientCall = FunctionCall | CustomCall | LocalShellCall | ShellCall | PatchCall | ComputerCall
ClientOutput = FunctionOutput | CustomOutput | LocalShellOutput | ShellOutput | PatchOutput | ComputerOutput
InputItem = InputMessage | Reasoning | ClientCall | ClientOutput | McpCall | CodeCall | Others


# -- as messages -------------------------------------------------------------------------------------------------------


class ItemMessages(NamedTuple):
    """The messages that items become."""

    messages: list[Message]
    # known here, so that nobody looks through thousands of messages for them
    has_media: bool
    arguments: list[str]  # the arguments of calls that are texts


def messages_of(items: list[InputItem], place: str) -> ItemMessages:
    """The thought, text and calls of one turn of the assistant become one message. `place`: the field of the items."""
    messages: list[Message] = []
    media: list[GivenMedia] = []
    thinking: list[Message] = []  # messages whose thoughts are still lists: joined once, at the end
    objects = chain.from_iterable(map(_objects_as_json, [items]))  # made when the first of them is needed
    texts: list[str] = []  # the arguments of calls that are texts
    last: Message | None = None  # the turn of the assistant that the chat ends with so far
    for i, item in enumerate(items):
        # A chat may have thousands of items, most of which are functions' calls and their outputs. `match` compares an
        # item with the class of each kind.
        known: Any = item
        kind = item.__class__
        if kind is FunctionOutput and known.output.__class__ is str:
            messages.append({"role": "tool", "tool_call_id": known.call_id, "content": known.output})
            last = None
        elif kind is InputMessage:
            last = _add_message(messages, last, known, f"{place}[{i}].content", media)
        elif kind is Reasoning:
            if thought := _thought(known):
                last = _think(messages, last, thought, thinking)
        elif kind is FunctionCall or kind in CALLED:
            if kind is FunctionCall:
                name = full_name(known.group, known.name) if known.group else known.name
                call_id, arguments = known.call_id, known.arguments
            else:
                call_id, name, arguments = CALLED[kind](known)
            if arguments.__class__ is str:
                texts.append(arguments)
            if last is None:
                messages.append(last := {"role": "assistant", "content": ""})
            call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            if "tool_calls" in last:
                last["tool_calls"].append(call)
            else:
                last["tool_calls"] = [call]
            if kind in RAN:
                messages.append(_result(known.id, RAN[kind](known, objects)))
                last = None
        elif (came_back := CAME_BACK.get(kind)) is not None:
            call_id, output = came_back(known, objects)
            text = output if output.__class__ is str else _content(output, f"{place}[{i}].output", media)
            messages.append(_result(call_id, text))
            last = None
    for message in thinking:
        message["reasoning_content"] = "\n\n".join(message["reasoning_content"])
    return ItemMessages(messages, bool(media), texts)


def _add_message(
    messages: list[Message], last: Message | None, item: InputMessage, place: str, media: list[GivenMedia]
) -> Message | None:
    """`place`: the field of its content. Takes and returns the turn of the assistant that the chat ends with.

    WRITES `messages` and `media`.
    """
    role, content = item.role, item.content
    text = content if content.__class__ is str else _content(content, place, media)
    if role == "assistant" and last is not None and not last["content"] and "tool_calls" not in last:
        last["content"] = text
        return last
    message = {"role": role, "content": text}
    messages.append(message)
    return message if role == "assistant" else None


def _think(messages: list[Message], last: Message | None, thought: str, thinking: list[Message]) -> Message:
    """A thought begins a new turn, unless the last turn consists of a thought alone. Returns its turn."""
    if last is None or last["content"] or "tool_calls" in last:
        messages.append(last := {"role": "assistant", "content": ""})
    if "reasoning_content" not in last:
        last["reasoning_content"] = []
        thinking.append(last)
    last["reasoning_content"].append(thought)
    return last


def _result(call_id: str, content: str | list[Any]) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def _of_code(item: CodeCall, objects: Iterator[str]) -> str:
    return "\n".join([str(each.get("logs") or next(objects)) for each in item.outputs or ()])


def _of_mcp(item: McpCall, objects: Iterator[str]) -> str:
    return item.output or (_json({"error": item.error}) if item.error else "")


def _of_shell(item: ShellOutput, objects: Iterator[str]) -> tuple[str, Output]:
    output = item.output
    return item.call_id, output if isinstance(output, str) else "\n".join(islice(objects, len(output)))


def _of_computer(item: ComputerOutput, objects: Iterator[str]) -> tuple[str, Output]:
    url = item.output.image_url
    return item.call_id, "" if url is None else [InputImagePart(image_url=url)]


# of each kind but a function's: the call's id, the tool's name and the arguments, which are an object, or JSON of one
CALLED: dict[type, Callable[[Any], tuple[str, str, Arguments]]] = {
    CustomCall: lambda item: (item.call_id, item.name, {"input": item.input}),
    LocalShellCall: lambda item: (item.call_id or item.id or "", "local_shell", _without_nulls(item.action)),
    ShellCall: lambda item: (item.call_id, "shell", _without_nulls(item.action)),
    PatchCall: lambda item: (item.call_id, "apply_patch", _without_nulls(item.operation)),
    ComputerCall: lambda item: (
        item.call_id, "computer", {"actions": item.actions or []} if item.action is None else item.action
    ),
    McpCall: lambda item: (item.id, item.name, item.arguments),
    CodeCall: lambda item: (item.id, "code_interpreter", {"code": item.code or ""}),
}  # fmt: skip
# the result of a call that a server ran; `objects`: as `_objects_as_json` of the item and of what follows
RAN: dict[type, Callable[[Any, Iterator[str]], str]] = {McpCall: _of_mcp, CodeCall: _of_code}
# the call's id and its output
CAME_BACK: dict[type, Callable[[Any, Iterator[str]], tuple[str, Output]]] = {
    FunctionOutput: lambda item, _: (item.call_id, item.output),
    CustomOutput: lambda item, _: (item.call_id, item.output),
    LocalShellOutput: lambda item, _: (item.call_id or item.id or "", item.output),
    ShellOutput: _of_shell,
    PatchOutput: lambda item, _: (item.call_id, item.output or item.status or ""),
    ComputerOutput: _of_computer,
}


def full_name(group: str | None, name: str) -> str:
    """The name by which the model calls a function. `group`: its namespace, if any."""
    return f"{group}{BETWEEN_NAMES}{name}" if group else name


def _json(value: Any) -> str:
    return exact_json.dumps(value, ensure_ascii=False)


def _objects_as_json(items: list[InputItem]) -> list[str]:
    """The objects that outputs of a shell and of code consist of, in order. There may be thousands of such items."""
    found: list[dict[str, Any]] = []
    for item in items:
        if item.__class__ is ShellOutput and item.output.__class__ is list:
            found += item.output
        elif item.__class__ is CodeCall:
            found += [each for each in item.outputs or () if not each.get("logs")]
    return exact_json.dumps_each(found, ensure_ascii=False)


def _without_nulls(action: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in action.items() if value is not None}


# -- contents ----------------------------------------------------------------------------------------------------------


def _content(content: Output, place: str, media: list[GivenMedia]) -> str | list[Any]:
    """A text, or a list of parts in order if there are media. WRITES `media`: adds them."""
    if isinstance(content, str) or MEDIA.isdisjoint(map(type, content)):
        return text_of(content)
    parts = [
        part_source(f"{place}[{j}]", to_builtins(part)) if type(part) in MEDIA else _text_part(part)
        for j, part in enumerate(content)
    ]
    media += [part for part in parts if isinstance(part, GivenMedia)]
    return parts


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
