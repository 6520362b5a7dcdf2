"""What /v1/responses replies: the response, its items, the events of its stream. Decides nothing, as shapes.py."""

from typing import Any, Literal

from ramet.runtime.server.spec.shapes import CachedTokens, ReasoningTokens, Shape, ToldPlace


class ResponseUsage(Shape):
    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class ResponseError(Shape):
    code: str
    message: str


class OutputText(Shape, tag_field="type", tag="output_text"):
    text: str
    annotations: list[Any]
    logprobs: list[ToldPlace]


class ReasoningText(Shape, tag_field="type", tag="reasoning_text"):
    text: str


OutputPart = OutputText | ReasoningText


ItemStatus = Literal["in_progress", "completed", "incomplete"]


class MessageItem(Shape, tag_field="type", tag="message"):
    id: str
    status: ItemStatus
    role: Literal["assistant"]
    content: list[OutputText]


class ReasoningItem(Shape, tag_field="type", tag="reasoning"):
    id: str
    status: ItemStatus
    summary: list[Any]
    content: list[ReasoningText]


class CallItem(Shape, tag_field="type", tag="function_call"):
    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


OutputItem = MessageItem | ReasoningItem | CallItem


class ResponseReply(Shape):
    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "cancelled", "failed"]
    background: bool
    error: ResponseError | None
    incomplete_details: dict[str, str] | None
    instructions: str | None
    max_output_tokens: int | None
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: dict[str, str | None]
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: str
    usage: ResponseUsage | None
    user: str | None
    metadata: dict[str, Any]


class ResponseItems(Shape):
    """The input of a stored response, as it was sent."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedResponse(Shape):
    id: str
    object: Literal["response"]
    deleted: bool


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
