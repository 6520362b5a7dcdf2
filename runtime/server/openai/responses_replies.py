"""The replies of /v1/responses: the response, its items, the events of its stream."""

from typing import Any, Literal

from msgspec import field

from ramet.runtime.reply import Reply
from ramet.runtime.server.openai.replies import CachedTokens, ReasoningTokens, TokenLogprob

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class ResponseUsage(Reply, frozen=True):
    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class ResponseError(Reply, frozen=True):
    code: str
    message: str


class OutputText(Reply, frozen=True, kw_only=True, tag_field="type", tag="output_text"):
    text: str
    annotations: list[Any] = field(default_factory=list)
    logprobs: list[TokenLogprob]


class ReasoningText(Reply, frozen=True, tag_field="type", tag="reasoning_text"):
    text: str


class Item(Reply, frozen=True, tag_field="type"):
    id: str


class MessageItem(Item, frozen=True, kw_only=True, tag="message"):
    status: ItemStatus = "in_progress"
    role: Literal["assistant"] = "assistant"
    content: list[OutputText] = field(default_factory=list)


class ReasoningItem(Item, frozen=True, kw_only=True, tag="reasoning"):
    status: ItemStatus = "in_progress"
    summary: list[Any] = field(default_factory=list)
    content: list[ReasoningText] = field(default_factory=list)


class CallItem(Item, frozen=True, kw_only=True, tag="function_call"):
    call_id: str
    name: str
    arguments: str = ""
    status: ItemStatus = "in_progress"


OutputPart = OutputText | ReasoningText
OutputItem = MessageItem | ReasoningItem | CallItem


class ResponseReply(Reply, frozen=True, kw_only=True):
    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "cancelled", "failed"] = "in_progress"
    background: bool = False
    error: ResponseError | None = None
    incomplete_details: dict[str, str] | None = None
    instructions: str | None
    max_output_tokens: int | None
    model: str
    output: list[OutputItem] = field(default_factory=list)
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
    truncation: str = "disabled"
    usage: ResponseUsage | None = None
    user: str | None
    metadata: dict[str, Any]


class ResponseItems(Reply, frozen=True, kw_only=True):
    """The input of a stored response, as it was sent."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedResponse(Reply, frozen=True):
    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


class Event(Reply, frozen=True, tag_field="type"):
    sequence_number: int


class OfResponse(Event, frozen=True):
    response: ResponseReply


class ResponseCreated(OfResponse, frozen=True, tag="response.created"):
    pass


class ResponseInProgress(OfResponse, frozen=True, tag="response.in_progress"):
    pass


class ResponseCompleted(OfResponse, frozen=True, tag="response.completed"):
    pass


class ResponseIncomplete(OfResponse, frozen=True, tag="response.incomplete"):
    pass


class ResponseFailed(OfResponse, frozen=True, tag="response.failed"):
    """The stream broke off; `response.error` says why."""


class OfItem(Event, frozen=True):
    output_index: int
    item: OutputItem


class ItemAdded(OfItem, frozen=True, tag="response.output_item.added"):
    pass


class ItemDone(OfItem, frozen=True, tag="response.output_item.done"):
    pass


class InItem(Event, frozen=True):
    item_id: str
    output_index: int


class InPart(InItem, frozen=True, kw_only=True):
    content_index: int = 0


class PartAdded(InPart, frozen=True, kw_only=True, tag="response.content_part.added"):
    part: OutputPart


class PartDone(InPart, frozen=True, kw_only=True, tag="response.content_part.done"):
    part: OutputPart


class OutputTextDelta(InPart, frozen=True, kw_only=True, tag="response.output_text.delta"):
    delta: str
    logprobs: list[TokenLogprob]


class OutputTextDone(InPart, frozen=True, kw_only=True, tag="response.output_text.done"):
    text: str
    logprobs: list[TokenLogprob]


class ReasoningDelta(InPart, frozen=True, kw_only=True, tag="response.reasoning_text.delta"):
    delta: str


class ReasoningDone(InPart, frozen=True, kw_only=True, tag="response.reasoning_text.done"):
    text: str


class ArgumentsDelta(InItem, frozen=True, tag="response.function_call_arguments.delta"):
    delta: str


class ArgumentsDone(InItem, frozen=True, tag="response.function_call_arguments.done"):
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
