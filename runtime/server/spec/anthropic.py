"""What Anthropic's endpoints reply, and the events of their streams. Decides nothing, as shapes.py."""

from typing import Any, Literal

from ramet.runtime.server.spec.errors import AnthropicMessage
from ramet.runtime.server.spec.shapes import Shape


class AnthropicUsage(Shape):
    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class TextBlock(Shape, tag_field="type", tag="text"):
    text: str


class ThinkingBlock(Shape, tag_field="type", tag="thinking"):
    thinking: str
    signature: str


class ToolUseBlock(Shape, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


ContentBlock = TextBlock | ThinkingBlock | ToolUseBlock


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class AnthropicReply(Shape):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ContentBlock]
    stop_reason: StopReason
    stop_sequence: str | None
    usage: AnthropicUsage


class TokenCount(Shape):
    input_tokens: int


class Tagged(Shape, tag_field="type"):
    pass


class StartedMessage(Tagged, tag="message"):
    """A message before it has said anything."""

    id: str
    role: Literal["assistant"]
    model: str
    content: list[Any]
    stop_reason: None
    stop_sequence: None
    usage: AnthropicUsage


class MessageStart(Tagged, tag="message_start"):
    message: StartedMessage


class BlockStart(Tagged, tag="content_block_start"):
    index: int
    content_block: ContentBlock


class TextDelta(Tagged, tag="text_delta"):
    text: str


class ThinkingDelta(Tagged, tag="thinking_delta"):
    thinking: str


class InputDelta(Tagged, tag="input_json_delta"):
    partial_json: str


class BlockDelta(Tagged, tag="content_block_delta"):
    index: int
    delta: TextDelta | ThinkingDelta | InputDelta


class BlockStop(Tagged, tag="content_block_stop"):
    index: int


class Ending(Shape):
    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(Tagged, tag="message_delta"):
    delta: Ending
    usage: AnthropicUsage


class MessageStop(Tagged, tag="message_stop"):
    pass


class MessageError(Tagged, tag="error"):
    """The stream broke off."""

    error: AnthropicMessage


AnthropicEvent = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | MessageError
