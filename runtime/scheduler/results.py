"""From drawn tokens to requests that go on or end, and to the one message that tells it. Algorithm 1, last part.

Decides publishing and the order of news: a request is opened before its first token and closed after its last, and
every one that was accepted is closed exactly once. Knows seats and stopping, not the policy.
"""

import logging
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from ramet.ipc.channel import Outbox
from ramet.ipc.messages import Closed, Finish, FinishKind, HiddenStates, Logprobs, Opened, TokenStep, Uid, pack_ids
from ramet.ipc.spec import HiddenMode
from ramet.runtime.arrays import Ints
from ramet.runtime.engine.batch import StepResult
from ramet.runtime.request import Request
from ramet.runtime.sampling.columns import PlaceLogprobs
from ramet.runtime.scheduler.batch import Step
from ramet.runtime.scheduler.running import RunningSet, Seat
from ramet.runtime.scheduler.stopping import Stopping

log = logging.getLogger("ramet")
UNKNOWN = np.array([np.nan], dtype=np.float32).tobytes()  # of the first prompt token that is asked about


@dataclass(slots=True)
class _News:
    uids: list[Uid] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    closed: list[Closed] = field(default_factory=list)
    scores: list[Logprobs] = field(default_factory=list)
    hidden: list[HiddenStates] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.uids or self.opened or self.closed or self.scores or self.hidden)


class Results:
    """Applies step results to the running set and speaks to the detokenizer."""

    def __init__(self, running: RunningSet, stopping: Stopping, detokenizer: Outbox) -> None:
        self._running, self._stopping, self._detokenizer = running, stopping, detokenizer
        self._news = _News()
        self.generated_tokens = 0
        self.cached_tokens = 0  # prompt tokens that were found in the tree
        self.finished_requests = 0

    def apply(self, step: Step, result: StepResult) -> None:
        """Advance every row, draw by draw; whoever ends leaves its seat."""
        drawn = dict(zip(step.batch.draws.tolist(), result.tokens.tolist(), strict=True))
        broken = {int(step.batch.draws[i]) for i in result.broken}
        failed = {int(step.batch.draws[i]): (why, status) for i, why, status in result.failures}
        drawn_logprobs = _by_row(step, result)
        prompt_logprobs, hidden = iter(result.prompt_logprobs), iter(result.hidden)
        for row, work in enumerate(step.works):
            seat, extended = work.seat, not work.seat.decoding
            if scored := work.scored:
                self._tell_prompt(seat.request, scored, next(prompt_logprobs))
            shown = work.shown
            states = next(hidden) if shown else None
            seat.computed += work.num_new
            if row in failed:
                why, status = failed[row]
                self._end(seat, Finish(FinishKind.ABORT, message=why, status=status))
                continue
            if row in broken:
                self._end(
                    seat, Finish(FinishKind.ABORT, message="the model produced logits that are not finite", status=500)
                )
                continue
            if extended:
                self._running.publish(seat)
            finish = self._advance(seat, drawn.get(row))
            if row in drawn_logprobs:
                token = np.array([drawn[row]], dtype=np.int32)
                self._news.scores.append(_packed(seat.request.uid, False, token, drawn_logprobs[row]))
            if states is not None and (seat.request.spec.hidden is not HiddenMode.LAST or finish is not None):
                self._news.hidden.append(HiddenStates(seat.request.uid, states.shape[1], states.tobytes()))
                seat.request.next_hidden += len(shown)
            if finish is not None:
                self._end(seat, finish)

    def open(self, seat: Seat) -> None:
        """Say that a request runs; once in its life."""
        self.cached_tokens += 0 if seat.request.opened else seat.lease.length
        self._open(seat.request)

    def close_waiting(self, request: Request, finish: Finish) -> None:
        """End a request that has no seat."""
        self._open(request)
        self._close(request, finish)

    def close_running(self, seat: Seat, finish: Finish) -> None:
        """End a request between two steps; what it computed is sound and stays cached."""
        self._running.leave(seat)
        self._close(seat.request, finish)

    def send(self) -> None:
        """One message for the whole step."""
        if self._news:
            news, self._news = self._news, _News()
            tokens = pack_ids(news.tokens)
            self._detokenizer.send(TokenStep(news.uids, tokens, news.opened, news.closed, news.scores, news.hidden))

    def _advance(self, seat: Seat, token: int | None) -> Finish | None:
        request = seat.request
        if token is None:
            done = seat.uncomputed == 0 and request.remaining == 0  # prefill only: max_new_tokens is 0
            return Finish(FinishKind.LENGTH, length=0) if done else None
        request.append(token)
        self.generated_tokens += 1
        self._news.uids.append(request.uid)
        self._news.tokens.append(token)
        try:
            return self._stopping.decide(request, token)
        except Exception as error:
            log.exception("request %d failed while looking for its stop text", request.uid)
            return Finish(FinishKind.ABORT, message=f"internal error: {type(error).__name__}", status=500)

    def _tell_prompt(self, request: Request, scored: range, scores: PlaceLogprobs) -> None:
        request.next_scored = scored.stop if scored.stop < request.prompt_len else None
        ids = request.tokens[scored.start : scored.stop]
        self._news.scores.append(_packed(request.uid, True, ids, scores))

    def _end(self, seat: Seat, finish: Finish) -> None:
        self._running.leave(seat, publish=not finish.aborted)
        self._close(seat.request, finish)

    def _open(self, request: Request) -> None:
        if request.opened:
            return
        request.opened = True
        cached = request.cached_tokens or 0
        self._news.opened.append(Opened(request.uid, request.spec, request.prompt_len, cached))
        ask = request.spec.logprobs
        if ask is not None and ask.start is not None and ask.start < request.prompt_len:
            first = request.tokens[ask.start : ask.start + 1]
            self._news.scores.append(Logprobs(request.uid, True, first.tobytes(), UNKNOWN))

    def _close(self, request: Request, finish: Finish) -> None:
        self._stopping.forget(request)
        self.finished_requests += 1
        told = replace(finish, num_retractions=request.num_retractions)
        self._news.closed.append(Closed(request.uid, told))


def _by_row(step: Step, result: StepResult) -> dict[int, PlaceLogprobs]:
    """Row of the batch -> log-probabilities of the token that it drew."""
    asked = step.batch.sampling.logprobs
    return {int(step.batch.draws[each.row]): scores for each, scores in zip(asked, result.drawn_logprobs, strict=True)}


def _packed(uid: Uid, of_prompt: bool, ids: Ints, scores: PlaceLogprobs) -> Logprobs:
    return Logprobs(
        uid,
        of_prompt,
        ids.tobytes(),
        scores.values.tobytes(),
        scores.top_ids.tobytes(),
        scores.top_values.tobytes(),
        scores.chosen.tobytes(),
    )
