"""The bodies of Anthropic's endpoints. Only shapes; content blocks are read in chat.py."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from ramet.ipc.params import MAX_NEW_TOKENS, about
from ramet.runtime.intake.fields import sampled, unbuilt
from ramet.runtime.intake.sampling_fields import SamplingFields
from ramet.runtime.intake.schemas import (
    ANTHROPIC_MESSAGE,
    HIDDEN_STATES,
    TEXT_BLOCK,
    TOOL_NAME,
    one_of,
    typed_fields,
)


class AnthropicTool(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(pattern=TOOL_NAME)]
    description: str | None = None
    input_schema: Annotated[dict[str, Any] | None, about("a JSON schema of the arguments")] = None
    type: Annotated[
        str | None, about("`custom`; Anthropic's own tools run on its servers alone", **one_of("custom"))
    ] = None


Turns = Annotated[
    list[Annotated[dict[str, Any], Meta(extra_json_schema=ANTHROPIC_MESSAGE)]],
    about("turns of user and assistant; a last one of the assistant is continued", minItems=1),
]
ModelName = Annotated[str | None, about("the served model, `default`, or nothing")]
System = Annotated[str | list[dict[str, Any]] | None, about("the system text, or text blocks", items=TEXT_BLOCK)]
Tools = Annotated[list[AnthropicTool] | None, about("functions that the model may call")]
ToolChoice = Annotated[
    dict[str, Any] | None,
    about("`auto` or `none`; `any` and a named tool are not built yet", **typed_fields("auto", "none", "any", "tool")),
]
Thinking = Annotated[
    dict[str, Any] | None,
    about(
        "`enabled` or `disabled` (as if absent): given to the chat template as `enable_thinking`; nothing is done "
        "with `budget_tokens`; with the `display` `omitted` thoughts are not told",
        **typed_fields("enabled", "adaptive", "disabled"),
    ),
]
TemplateKwargs = Annotated[dict[str, Any] | None, about("given to the chat template")]


class CountBody(Struct, frozen=True, kw_only=True):
    """/v1/messages/count_tokens."""

    messages: Turns
    model: ModelName = None
    system: System = None
    tools: Tools = None
    tool_choice: ToolChoice = None
    thinking: Thinking = None
    chat_template_kwargs: TemplateKwargs = None


class MessagesBody(SamplingFields, frozen=True, kw_only=True):
    """/v1/messages."""

    messages: Turns
    system: System = None
    tools: Tools = None
    tool_choice: ToolChoice = None
    thinking: Thinking = None
    chat_template_kwargs: TemplateKwargs = None
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
        bool | str | None, unbuilt("hidden states; completions tell them", enum=HIDDEN_STATES)
    ] = None
    mcp_servers: Annotated[list[Any] | None, unbuilt("tools of other servers")] = None
    container: Annotated[str | dict[str, Any] | None, unbuilt("a place to run code")] = None
    output_format: Annotated[dict[str, Any] | None, unbuilt("a JSON schema that the output keeps to")] = None
    output_config: Annotated[
        dict[str, Any] | None, about("nothing is done with `effort`; `format` is refused until it is built")
    ] = None
    thread: Annotated[dict[str, Any] | None, unbuilt("a chat that the server keeps; the client sends all of it")] = None


UNBUILT: dict[str, tuple[Any, ...]] = {
    "mcp_servers": (), "container": (), "output_format": (), "return_hidden_states": (False,),
}  # fmt: skip
