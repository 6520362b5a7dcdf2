"""Replies that the server and the in-process LLM share: a finished or growing output, a message of a chat."""

import time
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, to_builtins

from ramet.ipc.messages import Finish, FinishKind
from ramet.runtime.engine_client.submission import Sequence
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart
from ramet.runtime.intake.reading import Reader, Thought
from ramet.runtime.logprobs import Triple

WEIGHT_VERSION = "default"
Triples = list[list[Triple] | None]


class Reply(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all replies. A reply has these fields and no others; a field that may be absent is UNSET then."""


class Stopped(Reply, frozen=True, tag_field="type", tag="stop"):
    """`matched`: the token, text or pattern that stopped it."""

    matched: int | str | None


class RanOut(Reply, frozen=True, tag_field="type", tag="length"):
    length: int


class Aborted(Reply, frozen=True, tag_field="type", tag="abort"):
    message: str
    status_code: int | None
    err_type: str


class MetaInfo(Reply, frozen=True, kw_only=True):
    """Log-probabilities and hidden states are there if they were asked for; `e2e_latency` (s) at the end."""

    id: str
    finish_reason: Stopped | RanOut | Aborted | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    num_retractions: int
    weight_version: str = WEIGHT_VERSION
    e2e_latency: float | UnsetType = UNSET
    input_token_logprobs: list[Triple] | UnsetType = UNSET
    input_top_logprobs: Triples | UnsetType = UNSET
    input_token_ids_logprobs: Triples | UnsetType = UNSET
    output_token_logprobs: list[Triple] | UnsetType = UNSET
    output_top_logprobs: Triples | UnsetType = UNSET
    output_token_ids_logprobs: Triples | UnsetType = UNSET
    hidden_states: list[Any] | UnsetType = UNSET


class GenerateReply(Reply, frozen=True):
    """A batch, or n > 1, gets a list of these."""

    text: str
    output_ids: list[int]
    meta_info: MetaInfo
    index: int | UnsetType = UNSET


def finish_reason(finish: Finish | None) -> Stopped | RanOut | Aborted | None:
    """None while it grows."""
    if finish is None:
        return None
    match finish.kind:
        case FinishKind.STOP:
            return Stopped(finish.matched)
        case FinishKind.LENGTH:
            return RanOut(finish.length)
        case FinishKind.ABORT:
            name = "BadRequestError" if 400 <= finish.status < 500 else "AbortError"
            return Aborted(finish.message, finish.status or None, name)


class CalledFunction(Reply, frozen=True):
    name: str
    arguments: str


class ToolCall(Reply, frozen=True, kw_only=True):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Reply, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | None
    reasoning: str | None
    tool_calls: list[ToolCall] | UnsetType = UNSET


class GrowingReply:
    """The output of one sequence as far as it was read."""

    def __init__(self, sequence: Sequence, index: int | UnsetType = UNSET) -> None:
        self._sequence, self._index = sequence, index
        self._text, self._ids = "", list[int]()

    def whole(self) -> GenerateReply:
        """Reads what is new; a reply with everything so far."""
        self._advance()
        logprobs = {name: self._listed(name, items) for name, items in logprobs_of(self._sequence).items()}
        return self._reply(self._text, self._listed("output_ids", self._ids), logprobs)

    def _advance(self) -> tuple[str, list[int]]:
        """Reads and returns what is new."""
        texts, ids = self._sequence.take()
        text = "".join(texts) + self._sequence.tail
        self._text += text
        self._ids += ids
        return text, ids

    def _reply(self, text: str, ids: list[int], logprobs: dict[str, Any]) -> GenerateReply:
        return GenerateReply(text, ids, meta_info(self._sequence, logprobs), self._index)

    def _listed(self, _: str, items: list[Any]) -> Any:
        """A list of a whole reply, under its name."""
        return items


def meta_info(sequence: Sequence, logprobs: dict[str, Any]) -> MetaInfo:
    """Of all that was taken of it. `logprobs`: as LogprobLists.meta gives them. Without a rid its uid names it.

    Latency, retractions and hidden states are known at the end.
    """
    finish, hidden = sequence.finish, sequence.hidden
    return MetaInfo(
        id=sequence.id,
        finish_reason=finish_reason(finish),
        prompt_tokens=sequence.num_prompt,
        completion_tokens=sequence.num_taken,
        cached_tokens=sequence.num_cached,
        num_retractions=finish.num_retractions if finish is not None else 0,
        e2e_latency=time.monotonic() - sequence.submission.arrival_s if finish is not None else UNSET,
        hidden_states=hidden.meta() if hidden is not None and finish is not None else UNSET,
        **logprobs,
    )


def logprobs_of(sequence: Sequence, first_output: int = 0, first_prompt: int = 0) -> dict[str, Any]:
    """The lists of meta_info, from these places on."""
    return sequence.logprobs.meta(first_output, first_prompt) if sequence.logprobs is not None else {}


def chat_message(sequence: Sequence, reader: Reader) -> ChatMessage:
    """Of a sequence that has ended. Thousands of pieces are joined once: adding them up copies each as often."""
    said, thoughts, calls = list[str](), list[str](), list[tuple[str, list[str]]]()
    for part in [part for text in sequence.take()[0] for part in reader.push(text)] + reader.close(sequence.tail):
        match part:
            case str():
                said.append(part)
            case Thought(text):
                thoughts.append(text)
            case CallStart(name):
                calls.append((name, []))
            case CallArguments(text):
                calls[-1][1].append(text)
    text, thought = "".join(said), "".join(thoughts) or None
    called = [(reader.new_call_id(), CalledFunction(name, "".join(pieces))) for name, pieces in calls]
    return ChatMessage(
        content=text if text or not calls else None,
        reasoning_content=thought,
        reasoning=thought,
        tool_calls=[ToolCall(id=call_id, function=function) for call_id, function in called] or UNSET,
    )


def chat_reply(sequence: Sequence, reader: Reader) -> dict[str, Any]:
    """Of one that has ended: its message as OpenAI's chat completions have it, and `meta_info` as of /generate."""
    finish = sequence.finish
    assert finish is not None, f"{sequence.uid} has not ended"
    message = to_builtins(chat_message(sequence, reader))
    del message["refusal"], message["reasoning_content"]  # the thought is in `reasoning`
    meta = {**to_builtins(meta_info(sequence, logprobs_of(sequence))), "reasoning_tokens": reader.reasoning_tokens}
    return {"message": message, "finish_reason": reader.reason(finish), "meta_info": meta}
