"""What OpenAI's text endpoints reply, but /v1/responses. Decides nothing, as shapes.py."""

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from ramet.runtime.server.spec.shapes import PromptUsage, Reason, Shape, ToldPlace, Usage


class CompletionLogprobs(Shape):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


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
    type: Literal["model"]
    display_name: str
    created_at: str


class ModelList(Shape):
    object: Literal["list"]
    data: list[ModelCard]
    has_more: bool
    first_id: str
    last_id: str


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
