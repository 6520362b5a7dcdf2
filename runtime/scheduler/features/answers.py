"""What a step says beside tokens: log-probabilities, hidden states, results that are not finite.

Called for steps that asked for something or have broken results, and while requests are computed once more.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from ramet.ipc.message import Uid
from ramet.ipc.messages import Finish
from ramet.runtime.arrays import Flags
from ramet.runtime.engine.batch import StepResult
from ramet.runtime.scheduler.features.beside_tokens import BesideTokens
from ramet.runtime.scheduler.features.contexts import Part
from ramet.runtime.scheduler.features.hidden import HiddenSpan
from ramet.runtime.scheduler.features.late_tokens import LateTokens
from ramet.runtime.scheduler.features.logprobs import PromptSpan, packed
from ramet.runtime.scheduler.features.media import ids_of
from ramet.runtime.scheduler.features.pooled import Pooled, add_states, through_heads
from ramet.runtime.scheduler.features.returned import ReturnedLogprobs, ReturnedStates
from ramet.runtime.scheduler.features.unsound import UnsoundPrefixes
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.scheduler.step import Step

if TYPE_CHECKING:
    from ramet.runtime.engine.pooler import HostPooler


class StepAnswers:
    """Takes what rows asked for out of the results of steps. R rows of a step."""

    def __init__(
        self, running: RunningSet, late: LateTokens, unsound: UnsoundPrefixes, beside: BesideTokens,
        pooler: "HostPooler | None",
    ) -> None:  # fmt: skip
        self._running, self._late, self._unsound, self._beside = running, late, unsound, beside
        self._pooler = pooler
        self.apart: Collection[Uid] = unsound.apart  # requests that are computed once more
        self._waiting: set[int] = set()  # rows whose states wait until it is known which tokens heal their prompt

    def begin(self, step: Step, result: StepResult, alive: Flags) -> Flags:
        """alive [R]: rows that are what the step was planned for. Returns [R] those whose results count, and tells
        what they return of their prompts.
        """
        going = self._sound(step, result, alive)
        for span, values in step.answered(PromptSpan, result):
            if going[span.index]:
                request = self._running.at(step.batch.rows[span.index]).request
                request.own[ReturnedLogprobs].next = span.stop if span.stop < request.prompt_len else None
                logprobs = packed(request.uid, True, ids_of(request, span.start, span.stop), values)
                part = request.own.get(Part)
                if part is None:
                    self._beside.add_logprobs([logprobs])
                else:
                    part.logprobs.append(logprobs)
        return going

    def read(self, step: Step, result: StepResult, going: Flags) -> None:
        """Read what is returned of drawn tokens, and what is needed to tell those that are told late."""
        sampling, draws, late = step.batch.sampling, step.batch.draws, self._late
        for asked, values in zip(sampling.logprobs, result.drawn_logprobs, strict=True):
            index = int(draws[asked.row])
            if going[index]:
                uid = Uid(int(step.uids[index]))
                late.drawn[uid] = packed(uid, False, result.tokens[asked.row : asked.row + 1], values)
        healed = [int(draws[each.row]) for each in sampling.healed]
        late.places = {int(step.uids[i]): place for i, place in zip(healed, result.healed, strict=True)}
        self._waiting.clear()
        for span, states in step.answered(HiddenSpan, result) if healed else ():
            if span.index in healed and going[span.index] and not span.last:
                running = self._running.at(step.batch.rows[span.index])
                if span.start >= running.request.prompt_len:
                    self._waiting.add(span.index)
                    late.healed.hold(running, states)

    def end(self, step: Step, result: StepResult, going: Flags, ends: dict[int, Finish]) -> None:
        """Tell what is left of the answers. `ends`: by row, why requests end with this step."""
        self._beside.add_logprobs(self._late.drawn.values())
        self._late.drawn.clear()
        pooled = list[Pooled]()
        for span, states in step.answered(HiddenSpan, result):
            if not going[span.index] or span.index in self._waiting or (span.last and span.index not in ends):
                continue
            request = self._running.at(step.batch.rows[span.index]).request
            request.own[ReturnedStates].next = span.stop
            if (part := request.own.get(Part)) is not None:
                part.states.append(states)
            elif (returned := add_states(request, states)) is not None:
                pooled.append((request, returned))
        for request, states in through_heads(self._pooler, pooled) if pooled else ():
            self._beside.add_states(request.uid, states)
        if self.apart:
            drew = step.batch.draws[going[step.batch.draws]]
            done = [index for index, finish in ends.items() if not finish.aborted]
            rows = step.batch.rows[[*drew, *done]]
            self._unsound.are_finite(self._running.table.uids[rows].tolist())

    def _sound(self, step: Step, result: StepResult, alive: Flags) -> Flags:
        """Rows but those with results that are not finite whose requests are computed once more instead of ending.

        Looks at logits, last hidden states and log-probabilities of prompts.
        """
        broken = set(step.batch.draws[list(result.broken)].tolist())
        for span, states in step.answered(HiddenSpan, result):
            if span.last and not np.isfinite(states).all():
                broken.add(span.index)
        for place, logprobs in step.answered(PromptSpan, result):
            if np.isnan(logprobs.values).any():
                broken.add(place.index)
        at, rows = self._running.at, step.batch.rows
        again = [index for index in sorted(broken) if alive[index] and not self._unsound.may_end(at(rows[index]))]
        going = alive.copy()
        going[again] = False
        return going
