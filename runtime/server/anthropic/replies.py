"""The replies of Anthropic's endpoints, the events of their streams, and what counts as usage."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, defstruct, field

from ramet.runtime.engine_client.submission import GeneratedSequence
from ramet.runtime.intake.reply import Reply, WeightSpan
from ramet.runtime.server.http.problems import AnthropicError

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class Tagged(Reply, frozen=True, tag_field="type"):
    """Base of what has a `type`."""


class AnthropicUsage(Reply, frozen=True, kw_only=True):
    """Input tokens are those that were computed; those that were read from the cache are counted beside them."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int
    output_tokens: int


class TextBlock(Tagged, frozen=True, tag="text"):
    text: str


class ThinkingBlock(Tagged, frozen=True, tag="thinking"):
    """The signature is empty: thoughts of clients are not verified."""

    thinking: str
    signature: str = ""


class ToolUseBlock(Tagged, frozen=True, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


ContentBlock = TextBlock | ThinkingBlock | ToolUseBlock


class MessageReply(Reply, frozen=True, kw_only=True):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    usage: AnthropicUsage


class AnthropicReply(MessageReply, frozen=True, kw_only=True):
    content: list[ContentBlock]
    stop_reason: StopReason
    stop_sequence: str | None
    weight_versions: list[WeightSpan] | UnsetType = UNSET


class TokenCount(Reply, frozen=True):
    input_tokens: int


class StartedMessage(MessageReply, frozen=True, kw_only=True):
    """A message before its first token."""

    content: list[Any] = field(default_factory=list)
    stop_reason: None = None
    stop_sequence: None = None


class Ending(Reply, frozen=True):
    stop_reason: StopReason
    stop_sequence: str | None
    weight_versions: list[WeightSpan] | UnsetType = UNSET


# -- events of a stream ------------------------------------------------------------------------------------------------


def _tagged(name: str, tag: str, /, **fields: Any) -> type[Struct]:
    return defstruct(name, fields.items(), bases=(Tagged,), tag=tag, frozen=True)


TextDelta = _tagged("TextDelta", "text_delta", text=str)
ThinkingDelta = _tagged("ThinkingDelta", "thinking_delta", thinking=str)
InputDelta = _tagged("InputDelta", "input_json_delta", partial_json=str)
BlockPart: Any = TextDelta | ThinkingDelta | InputDelta

MessageStart = _tagged("MessageStart", "message_start", message=StartedMessage)
BlockStart = _tagged("BlockStart", "content_block_start", index=int, content_block=ContentBlock)
BlockDelta = _tagged("BlockDelta", "content_block_delta", index=int, delta=BlockPart)
BlockStop = _tagged("BlockStop", "content_block_stop", index=int)
MessageDelta = _tagged("MessageDelta", "message_delta", delta=Ending, usage=AnthropicUsage)
MessageStop = _tagged("MessageStop", "message_stop")
AnthropicEvent: Any = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | AnthropicError


def usage_of(sequence: GeneratedSequence) -> AnthropicUsage:
    return AnthropicUsage(
        input_tokens=sequence.opened.prompt_tokens - sequence.opened.cached_tokens,
        cache_read_input_tokens=sequence.opened.cached_tokens,
        output_tokens=sequence.num_generated,
    )
