"""The replies of /v1/responses: the response, its items, the events of its stream."""

from typing import Any, Literal, Union

from msgspec import UNSET, Struct, UnsetType, defstruct, field

from ramet.runtime.intake.reply import Reply, WeightSpan
from ramet.runtime.server.openai.replies import CachedTokens, ReasoningTokens, TokenLogprob


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


class ReplyItem(Reply, frozen=True, tag_field="type"):
    id: str
    status: Literal["in_progress", "completed", "incomplete"] = "in_progress"


class MessageItem(ReplyItem, frozen=True, kw_only=True, tag="message"):
    role: Literal["assistant"] = "assistant"
    content: list[OutputText] = field(default_factory=list)


class ReasoningItem(ReplyItem, frozen=True, kw_only=True, tag="reasoning"):
    summary: list[Any] = field(default_factory=list)
    content: list[ReasoningText] = field(default_factory=list)


class CallItem(ReplyItem, frozen=True, kw_only=True, tag="function_call"):
    """The namespace is there where the function stood in one."""

    call_id: str
    name: str
    group: str | UnsetType = field(default=UNSET, name="namespace")
    arguments: str = ""


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
    weight_versions: list[WeightSpan] | UnsetType = UNSET


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


# -- events of a stream ------------------------------------------------------------------------------------------------


class Event(Reply, frozen=True, tag_field="type"):
    sequence_number: int


def _event(name: str, tag: str, /, *fields: tuple[Any, ...], **more: Any) -> type[Struct]:
    """An event with these fields: (name, type, default) of each, and `more` by their names."""
    return defstruct(name, [*fields, *more.items()], bases=(Event,), tag=tag, frozen=True, kw_only=True)


_OF_ITEM: list[tuple[Any, ...]] = [("output_index", int), ("item", OutputItem)]
_IN_ITEM: list[tuple[Any, ...]] = [("item_id", str), ("output_index", int)]
_IN_PART = [*_IN_ITEM, ("content_index", int, 0)]
_LOGPROBS = list[TokenLogprob]

ResponseCreated = _event("ResponseCreated", "response.created", response=ResponseReply)
ResponseInProgress = _event("ResponseInProgress", "response.in_progress", response=ResponseReply)
ResponseCompleted = _event("ResponseCompleted", "response.completed", response=ResponseReply)
ResponseIncomplete = _event("ResponseIncomplete", "response.incomplete", response=ResponseReply)
# the stream broke off; `response.error` says why
ResponseFailed = _event("ResponseFailed", "response.failed", response=ResponseReply)
ItemAdded = _event("ItemAdded", "response.output_item.added", *_OF_ITEM)
ItemDone = _event("ItemDone", "response.output_item.done", *_OF_ITEM)
PartAdded = _event("PartAdded", "response.content_part.added", *_IN_PART, part=OutputPart)
PartDone = _event("PartDone", "response.content_part.done", *_IN_PART, part=OutputPart)
OutputTextDelta = _event("OutputTextDelta", "response.output_text.delta", *_IN_PART, delta=str, logprobs=_LOGPROBS)
OutputTextDone = _event("OutputTextDone", "response.output_text.done", *_IN_PART, text=str, logprobs=_LOGPROBS)
ReasoningDelta = _event("ReasoningDelta", "response.reasoning_text.delta", *_IN_PART, delta=str)
ReasoningDone = _event("ReasoningDone", "response.reasoning_text.done", *_IN_PART, text=str)
ArgumentsDelta = _event("ArgumentsDelta", "response.function_call_arguments.delta", *_IN_ITEM, delta=str)
ArgumentsDone = _event("ArgumentsDone", "response.function_call_arguments.done", *_IN_ITEM, name=str, arguments=str)

ResponseEvent: Any = Union[tuple(Event.__subclasses__())]  # noqa: UP007
