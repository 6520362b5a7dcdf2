"""What a finished or growing sequence looks like to a client: the reply of /generate. Decides names, not transport.

`meta_info` is the HTTP server's and the in-process LLM's, so that both answer alike; `Sequence` is the LLM's own.
"""

import time
from typing import Any

from ramet.ipc.messages import Finish, FinishKind, HiddenStates, Logprobs, Opened
from ramet.runtime.logprobs import HiddenLists, LogprobLists

WEIGHT_VERSION = "default"


def finish_reason(finish: Finish | None) -> dict[str, Any] | None:
    """null while it grows."""
    if finish is None:
        return None
    match finish.kind:
        case FinishKind.STOP:
            return {"type": "stop", "matched": finish.matched}
        case FinishKind.LENGTH:
            return {"type": "length", "length": finish.length}
        case _:
            kind = "BadRequestError" if 400 <= finish.status < 500 else "AbortError"
            return {"type": "abort", "message": finish.message, "status_code": finish.status or None, "err_type": kind}


def meta_info(
    rid: str, finish: Finish | None, *, prompt_tokens: int, completion_tokens: int, cached_tokens: int, latency_s: float
) -> dict[str, Any]:
    """`e2e_latency` (seconds) and the number of retractions are told at the end only."""
    info: dict[str, Any] = {
        "id": rid,
        "finish_reason": finish_reason(finish),
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "cached_tokens": cached_tokens,
        "num_retractions": finish.num_retractions if finish is not None else 0,
        "weight_version": WEIGHT_VERSION,
    }
    if finish is not None:
        info["e2e_latency"] = latency_s
    return info


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
        """Everything so far: {"text", "output_ids", "meta_info"}."""
        meta = meta_info(
            self.rid,
            self.finish,
            prompt_tokens=self._opened.prompt_tokens if self._opened else 0,
            completion_tokens=len(self._tokens),
            cached_tokens=self._opened.cached_tokens if self._opened else 0,
            latency_s=time.monotonic() - self._arrival_s,
        )
        if self._scores is not None:
            meta |= self._scores.meta()
        if self._hidden is not None and self.done:
            meta["hidden_states"] = self._hidden.meta()
        return {"text": "".join(self._texts), "output_ids": list(self._tokens), "meta_info": meta}
