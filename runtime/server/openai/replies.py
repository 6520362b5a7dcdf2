"""The replies of OpenAI's endpoints except /v1/responses (responses_replies.py), and those parts that several have."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ramet.runtime.engine_client.submission import GeneratedSequence
from ramet.runtime.intake.reading import OutputReader
from ramet.runtime.intake.reply import ChatMessage, Reply, WeightSpan, routes_of, weight_spans
from ramet.runtime.replies.logprobs import LogprobLists, Triple
from ramet.runtime.replies.long_list import listed
from ramet.runtime.server.http import sse
from ramet.runtime.server.openai.prompt_logprobs import PromptPlaces

NUMBERS_OF_A_TOP = 4  # as many numbers a TopLogprob counts as, which comes with its text and bytes
FinishReason = Literal["stop", "length", "tool_calls", "abort"]


class CachedTokens(Reply, frozen=True):
    cached_tokens: int


class ReasoningTokens(Reply, frozen=True):
    reasoning_tokens: int


class PromptUsage(Reply, frozen=True):
    prompt_tokens: int
    total_tokens: int


class Usage(PromptUsage, frozen=True):
    """The number of reasoning tokens is where OpenAI's clients look, and where SGLang's do."""

    completion_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: ReasoningTokens
    reasoning_tokens: int


class TopLogprob(Reply, frozen=True):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob, frozen=True):
    top_logprobs: list[TopLogprob]


class CompletionLogprobs(Reply, frozen=True):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class Choice(Reply, frozen=True, kw_only=True):
    """In a stream only the last chunk of a choice says how it ended."""

    index: int
    finish_reason: FinishReason | None = None
    matched_stop: int | str | None = None
    hidden_states: list[Any] | UnsetType = UNSET
    weight_versions: list[WeightSpan] | UnsetType = UNSET
    routed_experts: str | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class Extension(Reply, frozen=True):
    """What SGLang's replies have beside OpenAI's: of the first choice."""

    routed_experts: str


class Completed(Reply, frozen=True, kw_only=True):
    """A stream's chunks have usage if it is asked for: each has its choice's so far, or the last one alone, which has
    no choices, while others have null.
    """

    id: str
    created: int
    model: str
    usage: Usage | UnsetType | None = UNSET
    sglext: Extension | UnsetType = UNSET


class CompletionChoice(Choice, frozen=True, kw_only=True):
    text: str
    logprobs: CompletionLogprobs | None = None
    prompt_logprobs: PromptPlaces | UnsetType = UNSET


class CompletionReply(Completed, frozen=True, kw_only=True):
    """A whole reply; a chunk of a stream has the same keys."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]


class ChatLogprobs(Reply, frozen=True):
    content: list[TokenLogprob]
    refusal: None = None


class ChatChoice(Choice, frozen=True, kw_only=True):
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class ChatReply(Completed, frozen=True, kw_only=True):
    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: PromptPlaces | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class FunctionDelta(Reply, frozen=True, kw_only=True):
    name: str | UnsetType = UNSET
    arguments: str


class ToolCallDelta(Reply, frozen=True, kw_only=True):
    """The first one of a call has its id, type and name."""

    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionDelta


class Delta(Reply, frozen=True, kw_only=True):
    """Loops of clients read a thought's attributes from every delta, so they are always there."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChunkChoice(Choice, frozen=True, kw_only=True):
    delta: Delta
    logprobs: ChatLogprobs | None = None


class ChatChunk(Completed, frozen=True, kw_only=True):
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChunkChoice]
    prompt_token_ids: list[int] | UnsetType = UNSET


class ModelCard(Reply, frozen=True, kw_only=True):
    """OpenAI's fields, then Anthropic's: the clients of both get the same path."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "ramet"
    root: str
    parent: str | None = None  # of an adapter its model
    max_model_len: int
    type: Literal["model"] = "model"
    display_name: str
    created_at: str


class ModelList(Reply, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[ModelCard]
    has_more: bool = False
    first_id: str
    last_id: str


class TokenizeReply(Reply, frozen=True):
    """A list of prompts gets a list of each."""

    tokens: list[int | list[int]]
    count: int | list[int]
    max_model_len: int


class DetokenizeReply(Reply, frozen=True):
    text: str | list[str]


class Embedding(Reply, frozen=True, kw_only=True):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingReply(Reply, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: PromptUsage


def usage_of(sequences: Sequence[GeneratedSequence], readers: Sequence[OutputReader] = ()) -> Usage:
    """Prompts count once, whatever n: their cached tokens are those of the first sample."""
    firsts = {id(sequence.prompt): sequence for sequence in reversed(sequences)}.values()
    return _usage(
        sum(sequence.opened.prompt_tokens for sequence in firsts),
        sum(sequence.opened.cached_tokens for sequence in firsts),
        sum(sequence.num_generated for sequence in sequences),
        sum(reader.reasoning_tokens for reader in readers),
    )


def usage_so_far(sequence: GeneratedSequence, completion_tokens: int, reader: OutputReader | None = None) -> Usage:
    """`completion_tokens`: those that were sent."""
    thought = reader.reasoning_tokens if reader is not None else 0
    return _usage(sequence.opened.prompt_tokens, sequence.opened.cached_tokens, completion_tokens, thought)


def _usage(prompt: int, cached: int, completion: int, reasoning: int) -> Usage:
    return Usage(prompt, prompt + completion, completion, CachedTokens(cached), ReasoningTokens(reasoning), reasoning)


def all_token_logprobs(lists: LogprobLists, num_top: int, as_ids: bool = False) -> Any:
    """Of the whole output. `num_top`: so many of the best."""
    return places_of(lists, 0, len(lists.output), num_top, as_ids)


def places_of(lists: LogprobLists, start: int, end: int, num_top: int, as_ids: bool = False) -> Any:
    """Of the output's places in [start, end), made in parts where they are many."""
    made = partial(token_logprobs, lists, num_top=num_top, as_ids=as_ids)
    return listed(made, start, end, NUMBERS_OF_A_TOP * (1 + num_top))


def token_logprobs(
    lists: LogprobLists, start: int, end: int, num_top: int | None = None, as_ids: bool = False
) -> list[TokenLogprob]:
    """Of the output's places in [start, end)."""
    places = zip(lists.output.tokens(start, end), lists.output.tops(start, end), strict=True)
    spelled = partial(_spelled, lists, as_ids)
    return [
        TokenLogprob(*spelled(token), [TopLogprob(*spelled(each)) for each in (top or ())[:num_top]])
        for token, top in places
    ]


def _spelled(lists: LogprobLists, as_ids: bool, triple: Triple) -> tuple[str, float, list[int]]:
    """The text or name, the log-probability and the bytes."""
    value, token, text = triple
    assert value is not None
    return token_name(triple, as_ids), value, list(lists.raw.get(token, (text or "").encode()))


def token_name(triple: Triple, as_ids: bool) -> str:
    """How a reply names a token: its text, or vLLM's form of its id."""
    return f"token_id:{triple[1]}" if as_ids else triple[2] or ""


def last_chunk(chunk: Completed, sequences: Sequence[GeneratedSequence], readers: Sequence[OutputReader] = ()) -> bytes:
    """Experts and usage, each in a chunk without choices, where the client asked for it."""
    extension, made = extension_of(sequences), b""
    if extension is not UNSET:
        made = sse.event(replace(chunk, sglext=extension))
    return made + sse.event(replace(chunk, usage=usage_of(sequences, readers))) if chunk.usage is None else made


def extension_of(sequences: Sequence[GeneratedSequence]) -> Extension | UnsetType:
    """`sequences`: that of each choice, in their order."""
    routes = routes_of(sequences[0])
    return routes if routes is UNSET else Extension(routes)


def ending(sequence: GeneratedSequence, reader: OutputReader | None = None) -> dict[str, Any]:
    """How a choice ended: its last fields."""
    finish = sequence.finish
    assert finish is not None
    return {
        "finish_reason": finish.kind.value if reader is None else reader.reason(finish),
        "matched_stop": finish.matched,
        "hidden_states": UNSET if sequence.hidden is None else sequence.hidden.meta(),
        "weight_versions": weight_spans(sequence),
        "routed_experts": routes_of(sequence, compact=True),
    }
