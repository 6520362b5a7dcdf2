"""The bodies of Anthropic's endpoints, their turns and content blocks. Only shapes; chat.py makes a chat of them."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import fields

from ramet.ipc.params import MAX_NEW_TOKENS, about
from ramet.runtime.intake.fields import Text, ToolName, including, unbuilt
from ramet.runtime.intake.messages import Media
from ramet.runtime.intake.specs import Hidden, SamplingFields, sampled


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


TextContents = str | list[TextContent | Media]


class ToolResult(Block, frozen=True, tag="tool_result"):
    tool_use_id: str
    content: TextContents | None = None
    is_error: bool | None = None


class Turn(Struct, frozen=True, tag_field="role"):
    """What one side said."""


class UserTurn(Turn, frozen=True, tag="user"):
    content: str | list[TextContent | ToolResult | Media]


class AssistantTurn(Turn, frozen=True, tag="assistant"):
    content: str | list[TextContent | ToolUse | ThinkingContent | RedactedThinking]


class SystemTurn(Turn, frozen=True, tag="system"):
    content: TextContents


class AnthropicTool(Struct, frozen=True, kw_only=True):
    name: ToolName
    description: str | None = None
    input_schema: Annotated[dict[str, Any] | None, about("a JSON schema of the arguments")] = None
    type: Annotated[Literal["custom"] | None, about("Anthropic's own tools run on its servers alone")] = None


class AnthropicChoice(Struct, frozen=True, kw_only=True):
    type: Literal["auto", "none", "any", "tool"]
    disable_parallel_tool_use: bool | None = None


class ThinkingOptions(Struct, frozen=True, kw_only=True):
    type: Literal["enabled", "adaptive", "disabled"]
    display: str | None = None


class OutputConfig(Struct, frozen=True, kw_only=True):
    format: Annotated[dict[str, Any] | None, unbuilt("a JSON schema that the output keeps to")] = None


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
        AnthropicChoice | None, about("`auto` or `none`; `any` and a named tool are not built yet")
    ] = None
    thinking: Annotated[
        ThinkingOptions | None,
        about(
            "`enabled` or `disabled` (as if absent): given to the chat template as `enable_thinking`; nothing is done "
            "with `budget_tokens`; with the `display` `omitted` the reply has no thoughts"
        ),
    ] = None
    chat_template_kwargs: Annotated[dict[str, Any] | None, about("given to the chat template")] = None


@including((field.name, field.type, field.default) for field in fields(CountBody))
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
    return_hidden_states: Annotated[
        Hidden | None, unbuilt("hidden states; completions return them", neutral=(False,))
    ] = None
    mcp_servers: Annotated[list[Any] | None, unbuilt("tools of other servers")] = None
    container: Annotated[str | dict[str, Any] | None, unbuilt("a place to run code")] = None
    output_format: Annotated[dict[str, Any] | None, unbuilt("a JSON schema that the output keeps to")] = None
    output_config: Annotated[OutputConfig | None, about("nothing is done with `effort`")] = None
    # the code sends the client's tool runner back to whole chats
    thread: Annotated[
        dict[str, Any] | None,
        unbuilt(
            "a chat that the server keeps; the client sends all of it",
            hint="send every turn of the chat",
            code="thread_unsupported_request",
        ),
    ] = None
