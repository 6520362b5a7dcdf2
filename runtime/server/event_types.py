"""What the parts of replies look like that come in several kinds: items, blocks and events, each told by its `type`.

Decides nothing, as reply_types.py, whose bases these share.
"""

from typing import Any, Literal

from ramet.runtime.server.reply_types import (
    AnthropicMessage,
    AnthropicUsage,
    ContentBlock,
    OutputItem,
    OutputPart,
    ResponseReply,
    Shape,
    StopReason,
    ToldPlace,
)


class Numbered(Shape, tag_field="type"):
    sequence_number: int


class ResponseCreated(Numbered, tag="response.created"):
    response: ResponseReply


class ResponseInProgress(Numbered, tag="response.in_progress"):
    response: ResponseReply


class ResponseCompleted(Numbered, tag="response.completed"):
    response: ResponseReply


class ResponseIncomplete(Numbered, tag="response.incomplete"):
    response: ResponseReply


class ResponseFailed(Numbered, tag="response.failed"):
    """The stream broke off; `response.error` says why."""

    response: ResponseReply


class ItemAdded(Numbered, tag="response.output_item.added"):
    output_index: int
    item: OutputItem


class ItemDone(Numbered, tag="response.output_item.done"):
    output_index: int
    item: OutputItem


class InItem(Numbered):
    item_id: str
    output_index: int


class PartAdded(InItem, tag="response.content_part.added"):
    content_index: int
    part: OutputPart


class PartDone(InItem, tag="response.content_part.done"):
    content_index: int
    part: OutputPart


class OutputTextDelta(InItem, tag="response.output_text.delta"):
    content_index: int
    delta: str
    logprobs: list[ToldPlace]


class OutputTextDone(InItem, tag="response.output_text.done"):
    content_index: int
    text: str
    logprobs: list[ToldPlace]


class ReasoningDelta(InItem, tag="response.reasoning_text.delta"):
    content_index: int
    delta: str


class ReasoningDone(InItem, tag="response.reasoning_text.done"):
    content_index: int
    text: str


class ArgumentsDelta(InItem, tag="response.function_call_arguments.delta"):
    delta: str


class ArgumentsDone(InItem, tag="response.function_call_arguments.done"):
    name: str
    arguments: str


ResponseEvent = (
    ResponseCreated
    | ResponseInProgress
    | ResponseCompleted
    | ResponseIncomplete
    | ResponseFailed
    | ItemAdded
    | ItemDone
    | PartAdded
    | PartDone
    | OutputTextDelta
    | OutputTextDone
    | ReasoningDelta
    | ReasoningDone
    | ArgumentsDelta
    | ArgumentsDone
)


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
