"""What replies look like, for /openapi.json and for the test that holds every reply against it.

Decides nothing: replies are plain objects, made where they are told. A field that one may leave out is UNSET here.
"""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType


class Shape(Struct, kw_only=True, forbid_unknown_fields=True):
    """Base: a reply has these keys and no others."""


class CachedTokens(Shape):
    cached_tokens: int


class ReasoningTokens(Shape):
    reasoning_tokens: int


class Usage(Shape):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: ReasoningTokens


class CompletionLogprobs(Shape):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


Reason = Literal["stop", "length", "tool_calls", "abort"]


class CompletionChoice(Shape):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Reason | None
    matched_stop: int | str | None
    hidden_states: list[Any] | UnsetType = UNSET


class CompletionReply(Shape):
    """A whole reply; a chunk of a stream has the same keys, and usage (null but in the last one) if it is asked for."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET


class ToldToken(Shape):
    token: str
    logprob: float
    bytes: list[int]


class ToldPlace(ToldToken):
    top_logprobs: list[ToldToken]


class ChatLogprobs(Shape):
    content: list[ToldPlace]
    refusal: None


class CalledFunction(Shape):
    name: str
    arguments: str


class ToolCall(Shape):
    id: str
    type: Literal["function"]
    function: CalledFunction


class ChatMessage(Shape):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str | None
    reasoning: str | None
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatChoice(Shape):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: Reason
    matched_stop: int | str | None
    hidden_states: list[Any] | UnsetType = UNSET


class ChatReply(Shape):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class FunctionDelta(Shape):
    arguments: str
    name: str | UnsetType = UNSET


class ToolCallDelta(Shape):
    """The first one of a call has its id, type and name."""

    index: int
    function: FunctionDelta
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class Delta(Shape):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChunkChoice(Shape):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: Reason | None
    matched_stop: int | str | None
    hidden_states: list[Any] | UnsetType = UNSET


class ChatChunk(Shape):
    """One event of a stream; with `include_usage` the last one has the usage and no choices."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | UnsetType | None = UNSET


class ModelCard(Shape):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: None
    max_model_len: int


class ModelList(Shape):
    object: Literal["list"]
    data: list[ModelCard]


class TokenizeReply(Shape):
    """A list of prompts gets a list of each."""

    tokens: list[int | list[int]]
    count: int | list[int]
    max_model_len: int


class DetokenizeReply(Shape):
    text: str | list[str]


class Embedding(Shape):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class PromptUsage(Shape):
    prompt_tokens: int
    total_tokens: int


class EmbeddingReply(Shape):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: PromptUsage


class ScoreReply(Shape):
    object: Literal["scoring"]
    model: str
    scores: list[list[float]]
    usage: Usage


class RankedText(Shape):
    text: str


class Ranked(Shape):
    index: int
    relevance_score: float
    document: RankedText | UnsetType = UNSET


class RerankReply(Shape):
    id: str
    object: Literal["rerank"]
    model: str
    results: list[Ranked]
    usage: Usage


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


class Stopped(Shape, tag_field="type", tag="stop"):
    """`matched`: the token, text or pattern that stopped it."""

    matched: int | str | None


class RanOut(Shape, tag_field="type", tag="length"):
    length: int


class Aborted(Shape, tag_field="type", tag="abort"):
    message: str
    status_code: int | None
    err_type: str


Triple = tuple[float | None, int, str | None]  # log-probability, token id, text
Triples = list[list[Triple] | None]


class MetaInfo(Shape):
    """Log-probabilities and hidden states are there if they were asked for; `e2e_latency` (s) at the end."""

    id: str
    finish_reason: Stopped | RanOut | Aborted | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    num_retractions: int
    weight_version: str
    e2e_latency: float | UnsetType = UNSET
    input_token_logprobs: list[Triple] | UnsetType = UNSET
    output_token_logprobs: list[Triple] | UnsetType = UNSET
    input_top_logprobs: Triples | UnsetType = UNSET
    output_top_logprobs: Triples | UnsetType = UNSET
    input_token_ids_logprobs: Triples | UnsetType = UNSET
    output_token_ids_logprobs: Triples | UnsetType = UNSET
    hidden_states: list[Any] | UnsetType = UNSET


class GenerateReply(Shape):
    """A batch, or n > 1, gets a list of these."""

    text: str
    output_ids: list[int]
    meta_info: MetaInfo
    index: int | UnsetType = UNSET


class Status(Shape):
    status: Literal["ok"]


class ModelInfo(Shape):
    model_path: str
    tokenizer_path: str
    served_model_name: str
    is_generation: bool
    preferred_sampling_params: None
    weight_version: str
    context_length: int
    vocab_size: int
    hidden_size: int


class ServerInfo(Struct, kw_only=True):
    """Beside these every option of `ramet serve` by its name."""

    model_path: str
    tokenizer_path: str
    served_model_name: str
    context_length: int
    max_total_num_tokens: int
    max_running_requests: int
    vocab_size: int
    sampling_defaults_resolved: dict[str, Any]
    version: str
    started: int
    internal_states: list[dict[str, Any]]


class Flushed(Shape):
    success: bool
    message: str


class AbortReply(Shape):
    """How many sequences were told to end."""

    aborted: int


class RequestState(Struct, kw_only=True):
    """The first sequence's keys, which depend on its state, and all sequences."""

    id: str
    state: str
    sequences: list[dict[str, Any]]


class StreamMessage(Shape):
    message: str
    type: str
    code: int
    retryable: bool


class StreamError(Shape):
    """The last event but [DONE] of a stream that broke off."""

    error: StreamMessage


class NativeMessage(Shape):
    message: str


class NativeError(Shape):
    error: NativeMessage


class OpenAIMessage(Shape):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(Shape):
    error: OpenAIMessage


class AnthropicDetails(Shape):
    error_code: str


class AnthropicMessage(Shape):
    type: str
    message: str
    details: AnthropicDetails | UnsetType = UNSET


class AnthropicError(Shape):
    type: Literal["error"]
    error: AnthropicMessage
