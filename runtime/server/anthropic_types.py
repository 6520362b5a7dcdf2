"""The bodies of Anthropic's endpoints. Only shapes; content blocks are read in anthropic_chat.py."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from ramet.ipc.params import about
from ramet.runtime.server.openai_types import sampled, unbuilt

_BLOCK: dict[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "required": ["type", "text"],
            "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
        },
        {
            "type": "object",
            "required": ["type", "id", "name", "input"],
            "properties": {
                "type": {"const": "tool_use"},
                "id": {"type": "string"},
                "name": {"type": "string"},
                "input": {"type": "object"},
            },
        },
        {
            "type": "object",
            "required": ["type", "tool_use_id"],
            "properties": {
                "type": {"const": "tool_result"},
                "tool_use_id": {"type": "string"},
                "content": {"anyOf": [{"type": "string"}, {"type": "array"}, {"type": "null"}]},
                "is_error": {"type": ["boolean", "null"]},
            },
        },
        {
            "type": "object",
            "required": ["type", "thinking"],
            "properties": {"type": {"const": "thinking"}, "thinking": {"type": "string"}},
        },
    ]
}
_MESSAGE: dict[str, Any] = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"enum": ["user", "assistant"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": _BLOCK}]},
    },
}


class AnthropicTool(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_.:/-]{1,128}$")]
    description: str | None = None
    input_schema: Annotated[dict[str, Any] | None, about("a JSON schema of the arguments")] = None
    type: Annotated[str | None, about("`custom`; Anthropic's own tools run on its servers alone")] = None


class CountBody(Struct, frozen=True, kw_only=True):
    """/v1/messages/count_tokens."""

    messages: Annotated[
        list[dict[str, Any]],
        Meta(
            description="turns of user and assistant; a last one of the assistant is continued",
            extra_json_schema={"items": _MESSAGE, "minItems": 1},
        ),
    ]
    model: Annotated[str | None, about("the served model, `default`, or nothing")] = None
    system: Annotated[str | list[dict[str, Any]] | None, about("the system text, or text blocks")] = None
    tools: Annotated[list[AnthropicTool] | None, about("functions that the model may call")] = None
    tool_choice: Annotated[
        dict[str, Any] | None, about("`auto` or `none`; `any` and a named tool are not built yet")
    ] = None
    thinking: Annotated[
        dict[str, Any] | None, about("`enabled` or `disabled`: given to the chat template as `enable_thinking`")
    ] = None
    chat_template_kwargs: Annotated[dict[str, Any] | None, about("given to the chat template")] = None


class MessagesBody(CountBody, frozen=True, kw_only=True):
    """/v1/messages."""

    max_tokens: Annotated[Any, sampled("max_new_tokens", "must be set")] = None
    stop_sequences: Annotated[Any, sampled("stop")] = None
    temperature: Annotated[Any, sampled("temperature")] = None
    top_p: Annotated[Any, sampled("top_p")] = None
    top_k: Annotated[Any, sampled("top_k")] = None
    stream: Annotated[bool | None, about("server-sent events as text comes")] = None
    metadata: Annotated[dict[str, Any] | None, about("accepted; nothing is done with it")] = None
    service_tier: Annotated[str | None, about("accepted; nothing is done with it")] = None
    cache_salt: Annotated[str | None, about("prompts share cached prefixes only with those of their salt")] = None
    priority: Annotated[int | None, about("the larger goes before the smaller, whatever the queue's policy says")] = (
        None
    )
    mcp_servers: Annotated[list[Any] | None, unbuilt("tools of other servers")] = None
    container: Annotated[str | dict[str, Any] | None, unbuilt("a place to run code")] = None
    output_format: Annotated[dict[str, Any] | None, unbuilt("a JSON schema that the output keeps to")] = None
    output_config: Annotated[
        dict[str, Any] | None, about("nothing is done with `effort`; `format` is refused until it is built")
    ] = None
    thread: Annotated[dict[str, Any] | None, unbuilt("a chat that the server keeps; the client sends all of it")] = None


UNBUILT: dict[str, tuple[Any, ...]] = {"mcp_servers": (), "container": (), "output_format": ()}
