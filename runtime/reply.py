"""The reply of /generate and of the in-process LLM: the output of a finished or growing sequence.

`Sequence` is the LLM's own.
"""

import time
from typing import Any

from msgspec import UNSET, Struct, UnsetType, to_builtins

from ramet.ipc.messages import Finish, FinishKind, HiddenStates, Logprobs, Opened
from ramet.runtime.logprobs import HiddenLists, LogprobLists, Triple

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


class Sequence:
    """One sequence's output as it grows."""

    def __init__(self, rid: str, arrival_s: float) -> None:
        self.rid, self._arrival_s = rid, arrival_s
        self.finish: Finish | None = None
        self._opened: Opened | None = None
        self._texts: list[str] = []
        self._tokens: list[int] = []
        self._scores: LogprobLists | None = None
        self._hidden: HiddenLists | None = None

    @property
    def done(self) -> bool:
        return self.finish is not None

    @property
    def size(self) -> int:
        """Grows with all that a reader has not seen."""
        return len(self._tokens) + self.done

    def open(self, opened: Opened) -> None:
        self._opened = opened
        self._scores = LogprobLists(opened) if opened.spec.logprobs is not None else None
        self._hidden = HiddenLists(opened) if opened.spec.hidden is not None else None

    def score(self, scores: Logprobs) -> None:
        assert self._scores is not None, f"log-probabilities came for {scores.uid}, which did not ask for them"
        self._scores.add(scores)

    def show(self, states: HiddenStates) -> None:
        assert self._hidden is not None, f"hidden states came for {states.uid}, which did not ask for them"
        self._hidden.add(states)

    def add(self, token: int, text: str) -> None:
        self._tokens.append(token)
        self._texts.append(text)

    def close(self, finish: Finish, tail: str) -> None:
        self.finish = finish
        self._texts.append(tail)

    def reply(self) -> dict[str, Any]:
        """Everything so far, as GenerateReply."""
        meta = meta_info(
            self.rid,
            self.finish,
            prompt_tokens=self._opened.prompt_tokens if self._opened else 0,
            completion_tokens=len(self._tokens),
            cached_tokens=self._opened.cached_tokens if self._opened else 0,
            latency_s=time.monotonic() - self._arrival_s,
            logprobs=self._scores.meta() if self._scores is not None else None,
            hidden=self._hidden,
        )
        reply: dict[str, Any] = to_builtins(GenerateReply("".join(self._texts), self._tokens, meta))
        return reply
