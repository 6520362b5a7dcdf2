"""The reply of /generate and of the in-process LLM: the output of a finished or growing sequence.

`GrowingReply` is the LLM's own.
"""

import time
from typing import Any

from msgspec import UNSET, Struct, UnsetType, to_builtins

from ramet.ipc.messages import Finish, FinishKind
from ramet.runtime.engine_client.submission import Sequence
from ramet.runtime.intake.reading import Reader, joined, read_parts
from ramet.runtime.logprobs import HiddenLists, Triple

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


def meta_info(
    rid: str,
    finish: Finish | None,
    *,
    prompt_tokens: int,
    completion_tokens: int,
    cached_tokens: int,
    latency_s: float,
    logprobs: dict[str, Any] | None = None,
    hidden: HiddenLists | None = None,
) -> MetaInfo:
    """`logprobs`: as LogprobLists.meta gives them. Latency, retractions and hidden states are known at the end."""
    return MetaInfo(
        id=rid,
        finish_reason=finish_reason(finish),
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cached_tokens=cached_tokens,
        num_retractions=finish.num_retractions if finish is not None else 0,
        e2e_latency=latency_s if finish is not None else UNSET,
        hidden_states=hidden.meta() if hidden is not None and finish is not None else UNSET,
        **(logprobs or {}),
    )


class GrowingReply:
    """What was read of one sequence so far."""

    def __init__(self, sequence: Sequence) -> None:
        self._sequence = sequence
        self._text, self._ids = "", list[int]()

    def read(self) -> dict[str, Any]:
        """Take what came, where the sequence grows; everything so far: {"text", "output_ids", "meta_info"}."""
        sequence = self._sequence
        texts, ids = sequence.take()
        self._text += "".join(texts) + sequence.tail
        self._ids += ids
        reply: dict[str, Any] = to_builtins(GenerateReply(self._text, self._ids, meta_of(sequence)))
        return reply


def chat_reply(sequence: Sequence, reader: Reader) -> dict[str, Any]:
    """Of one that has ended: its message as OpenAI's chat completions have it, and `meta_info` as of /generate."""
    finish = sequence.finish
    assert finish is not None, f"{sequence.uid} has not ended"
    said = joined(read_parts(sequence.take()[0], sequence.tail, reader), reader)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": said.text if said.text or not said.calls else None,
        "reasoning": said.thought or None,
    }
    if said.calls:
        calls = [(call.id, {"name": call.name, "arguments": call.arguments}) for call in said.calls]
        message["tool_calls"] = [{"id": name, "type": "function", "function": called} for name, called in calls]
    meta = {**to_builtins(meta_of(sequence)), "reasoning_tokens": reader.reasoning_tokens}
    return {"message": message, "finish_reason": reader.reason(finish), "meta_info": meta}


def meta_of(sequence: Sequence) -> MetaInfo:
    """Of all that was taken of it, named by its uid."""
    return meta_info(
        f"{sequence.uid}",
        sequence.finish,
        prompt_tokens=sequence.num_prompt,
        completion_tokens=sequence.num_taken,
        cached_tokens=sequence.num_cached,
        latency_s=time.monotonic() - sequence.submission.arrival_s,
        logprobs=sequence.logprobs.meta() if sequence.logprobs is not None else None,
        hidden=sequence.hidden,
    )
