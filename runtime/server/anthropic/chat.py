"""The bodies of Anthropic's endpoints, and the chats that they are: turns of content blocks to OpenAI's messages.

Decides what a block becomes. Knows no reply.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import fields

from ramet.ipc.media import MediaKind
from ramet.ipc.messages import Chat
from ramet.ipc.params import MAX_NEW_TOKENS, about
from ramet.ipc.spec import Constraint
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import other_servers
from ramet.runtime.intake.body import Refused
from ramet.runtime.intake.chat import Style, chosen_chat
from ramet.runtime.intake.constraints import of_schema
from ramet.runtime.intake.fields import Text, ToolName, including, unbuilt
from ramet.runtime.intake.limits import MAX_TURNS
from ramet.runtime.intake.messages import Files, Written
from ramet.runtime.intake.prompts import check_most
from ramet.runtime.intake.sampling_fields import SamplingFields, UnbuiltHidden
from ramet.runtime.intake.specs import sampled
from ramet.runtime.intake.tool_choice import Calls, named_call
from ramet.runtime.media.source import MediaSource


class Block(Struct, frozen=True, tag_field="type"):
    """A piece of a turn's content."""


class TextContent(Block, frozen=True, tag="text"):
    text: str


class ThinkingContent(Block, frozen=True, tag="thinking"):
    thinking: str


class RedactedThinking(Block, frozen=True, tag="redacted_thinking"):
    """Its words were never known."""


class ToolUse(Block, frozen=True, tag="tool_use"):
    id: str
    name: Text
    input: dict[str, Any]


class Source(Struct, frozen=True, tag_field="type"):
    """Where a picture is."""


class Base64Source(Source, frozen=True, kw_only=True, tag="base64"):
    data: Written
    media_type: Annotated[str, Meta(pattern="^image/[A-Za-z0-9.+-]{1,64}$")]


class UrlSource(Source, frozen=True, tag="url"):
    url: Written


class FileSource(Refused, frozen=True, tag="file"):
    pass


class ImageContent(Block, frozen=True, tag="image"):
    source: Base64Source | UrlSource | FileSource

    @property
    def written(self) -> str:
        match self.source:
            case Base64Source(data=data, media_type=media_type):
                return f"data:{media_type};base64,{data}"
            case UrlSource(url):
                return url
        raise AssertionError("a source that is refused was decoded")


TextContents = str | list[TextContent | Files]


class ToolResult(Block, frozen=True, tag="tool_result"):
    tool_use_id: str
    content: str | list[TextContent | ImageContent | Files] | None = None
    is_error: bool | None = None


class Turn(Struct, frozen=True, tag_field="role"):
    """What one side said."""


class UserTurn(Turn, frozen=True, tag="user"):
    content: str | list[TextContent | ImageContent | ToolResult | Files]


class AssistantTurn(Turn, frozen=True, tag="assistant"):
    content: str | list[TextContent | ToolUse | ThinkingContent | RedactedThinking]


class SystemTurn(Turn, frozen=True, tag="system"):
    content: TextContents


class AnthropicTool(Struct, frozen=True, kw_only=True):
    name: ToolName
    description: str | None = None
    input_schema: Annotated[dict[str, Any] | None, about("a JSON schema of the arguments")] = None
    type: Annotated[Literal["custom"] | None, about("Anthropic's own tools run on its servers alone")] = None
    strict: Annotated[bool | None, about("true: a call's input keeps to the schema, also where none is forced")] = None


class AnthropicChoice(Struct, frozen=True, kw_only=True):
    type: Literal["auto", "none", "any", "tool"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingOptions(Struct, frozen=True, kw_only=True):
    type: Literal["enabled", "adaptive", "disabled"]
    display: str | None = None


class OutputFormat(Struct, frozen=True, kw_only=True):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(Struct, frozen=True, kw_only=True):
    format: Annotated[OutputFormat | None, about("the text of the output is JSON that a JSON schema allows")] = None


Config = Annotated[OutputConfig | None, about("`format`; nothing is done with `effort`")]


@including(other_servers.COUNTED)
class CountBody(Struct, frozen=True, kw_only=True):
    """/v1/messages/count_tokens."""

    messages: Annotated[
        list[UserTurn | AssistantTurn | SystemTurn],
        Meta(min_length=1),
        about("turns of user and assistant; a last one of the assistant is continued"),
    ]
    model: Annotated[str | None, about("the served model, `default`, or nothing")] = None
    system: Annotated[TextContents | None, about("the system text, or text blocks")] = None
    tools: Annotated[list[AnthropicTool] | None, about("functions that the model may call")] = None
    tool_choice: Annotated[
        AnthropicChoice | None,
        about("`auto`, `none`, `any` (at least one call) or a `tool`: a call that is forced keeps to its schema"),
    ] = None
    thinking: Annotated[
        ThinkingOptions | None,
        about(
            "`enabled`, `adaptive` (the same) or `disabled` (as if absent): given to the chat template as "
            "`enable_thinking`; nothing is done with `budget_tokens`; with the `display` `omitted` the reply has no "
            "thoughts"
        ),
    ] = None
    chat_template_kwargs: Annotated[dict[str, Any] | None, about("given to the chat template")] = None
    output_config: Config = None


@including(other_servers.OF_MESSAGES)
@including((*((field.name, field.type, field.default) for field in fields(CountBody)), *other_servers.MESSAGES))
class MessagesBody(SamplingFields, frozen=True, kw_only=True):
    """/v1/messages."""

    max_tokens: Annotated[
        Any,
        about(
            "tokens to draw at most; cut to what the context leaves", type="integer", minimum=1, maximum=MAX_NEW_TOKENS
        ),
    ]
    stop_sequences: Annotated[Any, sampled("stop")] = None
    metadata: Annotated[dict[str, Any] | None, about("accepted; nothing is done with it")] = None
    service_tier: Annotated[str | None, about("accepted; nothing is done with it")] = None
    return_hidden_states: UnbuiltHidden = None
    mcp_servers: Annotated[list[Any] | None, unbuilt("tools of other servers")] = None
    container: Annotated[str | dict[str, Any] | None, unbuilt("a place to run code")] = None
    output_config: Config = None
    output_format: Annotated[OutputFormat | None, about("an older name of `output_config.format`")] = None
    # the code sends the client's tool runner back to whole chats
    thread: Annotated[
        dict[str, Any] | None,
        unbuilt(
            "a chat that the server keeps; the client sends all of it",
            hint="send every turn of the chat",
            code="thread_unsupported_request",
        ),
    ] = None

    def constraints(self, place: str = "") -> list[Constraint]:
        config = self.output_config
        asked = {"output_config.format": config and config.format, "output_format": self.output_format}
        schemas = [of_schema(name, form.schema) for name, form in asked.items() if form]
        return schemas + super().constraints(place)


Message = dict[str, Any]


def read_chat(body: CountBody, style: Style) -> tuple[Chat, Calls]:
    blocks = sum(len(turn.content) for turn in body.messages if isinstance(turn.content, list))
    check_most("messages", "messages and content blocks", len(body.messages) + blocks, MAX_TURNS)
    messages = [m for i, turn in enumerate(body.messages) for m in _messages(turn, f"messages[{i}].content")]
    system = _joined(body.system or "", "\n\n")  # blocks are paragraphs of it
    thinks = body.thinking is not None and body.thinking.type != "disabled"
    written = {
        "messages": [*([{"role": "system", "content": system}] if system else []), *messages],
        "tools": [_tool(tool) for tool in body.tools or ()],
        "chat_template_kwargs": {"enable_thinking": thinks} | (body.chat_template_kwargs or {}),
        "continue_final_message": messages[-1]["role"] == "assistant",
    }
    choice, tools = body.tool_choice, body.tools or []
    strict = (tool.name for tool in tools if tool.strict)
    parallel = choice is None or not choice.disable_parallel_tool_use
    return chosen_chat(written, _calls(choice, [tool.name for tool in tools]), style, strict, parallel, "input_schema")


def _calls(choice: AnthropicChoice | None, names: list[str]) -> Calls:
    match choice:
        case AnthropicChoice(type="tool", name=name):
            return named_call(name, names)
        case AnthropicChoice(type="none"):
            return Calls()
        case AnthropicChoice(type="any") if not names:
            raise ClientError("tool_choice", "is of type 'any', but tools is empty", "it needs tools")
    return Calls(frozenset(names), forced=choice is not None and choice.type == "any")


def _tool(tool: AnthropicTool) -> dict[str, Any]:
    schema = tool.input_schema or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description or "", "parameters": schema},
    }


def _messages(turn: UserTurn | AssistantTurn | SystemTurn, place: str) -> Iterator[Message]:
    """One turn as OpenAI's messages: results of tools are messages of their own, before the rest.

    `place`: of its content.
    """
    match turn:
        case AssistantTurn(content):
            yield _assistant([TextContent(content)] if isinstance(content, str) else content)
        case SystemTurn(content):
            yield {"role": "system", "content": _joined(content)}
        case UserTurn(content):
            blocks = [] if isinstance(content, str) else content
            results = [(j, block) for j, block in enumerate(blocks) if isinstance(block, ToolResult)]
            for j, block in results:
                yield _result(block, f"{place}[{j}].content")
            if not results or len(results) < len(content):
                yield {"role": "user", "content": _content(content, place)}


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
    function = {"name": block.name, "arguments": block.input}
    return {"id": block.id, "type": "function", "function": function}


def _result(block: ToolResult, place: str) -> Message:
    content = _content(block.content or "", place)
    if block.is_error and not _joined(block.content or "").startswith("Error"):  # templates know no other way to tell
        content = f"Error: {content}" if isinstance(content, str) else [_part("Error: "), *content]
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}


def _content(content: str | list[Any], place: str) -> str | list[Any]:
    """Texts joined, or with pictures among them parts in order."""
    if isinstance(content, str) or not any(isinstance(block, ImageContent) for block in content):
        return _joined(content)
    return [
        _part(block.text)
        if isinstance(block, TextContent)
        else MediaSource(MediaKind.IMAGE, f"{place}[{j}].source", block.written)
        for j, block in enumerate(content)
        if isinstance(block, TextContent | ImageContent)
    ]


def _part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _joined(content: str | list[Any], between: str = "") -> str:
    """The text of blocks."""
    return content if isinstance(content, str) else between.join(b.text for b in content if isinstance(b, TextContent))
