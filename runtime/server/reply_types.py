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
    output: list[dict[str, Any]]
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


class ResponseEvent(Struct, kw_only=True):
    """One event of a stream; the rest of its keys depends on its type."""

    type: str
    sequence_number: int


class AnthropicUsage(Shape):
    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class AnthropicReply(Shape):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
    stop_sequence: str | None
    usage: AnthropicUsage


class AnthropicEvent(Struct, kw_only=True):
    """One event of a stream; the rest of its keys depends on its type."""

    type: str


class TokenCount(Shape):
    input_tokens: int


class GenerateReply(Shape):
    """A batch, or n > 1, gets a list of these."""

    text: str
    output_ids: list[int]
    meta_info: dict[str, Any]
    index: int | UnsetType = UNSET


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


class AnthropicMessage(Shape):
    type: str
    message: str


class AnthropicError(Shape):
    type: Literal["error"]
    error: AnthropicMessage
