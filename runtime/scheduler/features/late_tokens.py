"""Tokens that are told when more is known than that they were drawn: those under a constraint, of a prompt that is
healed, or of rows with stop patterns.

Decides who looks at such a token, and charges its request what that took. Knows no grammar and no pattern.
"""

import time
from collections.abc import Callable, Iterator

from ramet.ipc.messages import Finish, Logprobs
from ramet.runtime.sampling.columns import HealedPlace
from ramet.runtime.scheduler.features.aside import AsideRows
from ramet.runtime.scheduler.features.beside_tokens import BesideTokens
from ramet.runtime.scheduler.features.constrained import Constrained
from ramet.runtime.scheduler.features.constrained_rows import ConstrainedRows
from ramet.runtime.scheduler.features.constraints import failed, place_of
from ramet.runtime.scheduler.features.healing import HealedRows
from ramet.runtime.scheduler.features.masks import fill_mask
from ramet.runtime.scheduler.features.rewriting import RewrittenRows
from ramet.runtime.scheduler.features.slow_rows import LateRows, SlowRows
from ramet.runtime.scheduler.features.stop_patterns import PatternRows
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.scheduler.stopping import Stopping

Act = Callable[[RunningRequest], Finish | None]


class LateTokens:
    """Rows with a bit of RowFlag.TOLD_LATE. `drawn` and `places` are set by whoever reads the answers of a step."""

    def __init__(
        self, running: RunningSet, rewritten: RewrittenRows, stopping: Stopping, beside: BesideTokens, budget_s: float,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        """`budget_s`: processor time that one request's stop patterns and constraint may take on this thread."""
        self._running, self._beside, self._decide = running, beside, stopping.decide
        self.rewritten = rewritten
        self.slow = SlowRows(running, budget_s, clock)
        self._late = LateRows(running, self.slow)
        decide, send = stopping.decide, beside.add_token
        aside = AsideRows(running, failed)
        self.constrained = ConstrainedRows(
            rewritten, self.slow, self._late, aside, decide=decide, rewound=stopping.rewound, send=send, fill=fill_mask
        )
        self.patterns = PatternRows(rewritten, self.slow, self._late, decide=decide, send=send)
        self.healed = HealedRows(
            running, rewritten, self.constrained, push=self._push_free, send=send, show=beside.add_states
        )
        self.drawn: dict[int, Logprobs] = {}  # by uid: what the step says of drawn tokens that were not told yet
        self.places: dict[int, HealedPlace] = {}  # by uid: where the step looked for what heals a prompt

    # -- a step -----------------------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """A step has drawn such tokens."""
        self._late.begin_step()

    def token(self, running: RunningRequest, token: int) -> Finish | None:
        """`token` was drawn. Returns why its request ends, if so."""
        logprobs, flags = self.drawn.pop(running.uid, None), int(self._running.table.flags[running.row])
        if not flags & RowFlag.MASKED:
            return self.patterns.push(running, token, logprobs)
        if not flags & RowFlag.CONSTRAINED:
            return self.healed.push(running, token, self.places[running.uid], logprobs)
        begun_s, before = time.thread_time(), running.num_output
        if flags & RowFlag.HEALING:
            finish = self.healed.push(running, token, self.places[running.uid], logprobs)
        else:
            finish = self.constrained.push(running, token, logprobs)
        return self._pushed(running, finish, time.thread_time() - begun_s, before)

    def _push_free(self, running: RunningRequest, token: int, logprobs: Logprobs | None) -> Finish | None:
        """The last token of its output, which nobody knows of yet."""
        if running.request.params.stop_regex:
            return self.patterns.push(running, token, logprobs)
        self._beside.add_token(running.uid, token, logprobs)
        return self._decide(running, token)

    def _pushed(self, running: RunningRequest, finish: Finish | None, seconds: float, before: int) -> Finish | None:
        """Charge a request what its constraint took for the token that was drawn, and for its mask.

        `before`: tokens of its output then.
        """
        constrained, num_tokens = running.request.own[Constrained], max(running.num_output - before + 1, 1)
        self._late.step.spend(seconds, num_tokens)
        seconds, constrained.mask_s = seconds + constrained.mask_s, 0.0
        return self._took(running, finish, seconds, num_tokens)

    def _took(self, running: RunningRequest, finish: Finish | None, seconds: float, num_tokens: int) -> Finish | None:
        """`finish`: why the request ends, if it does anyhow."""
        if finish is not None:
            self.slow.spend(seconds, num_tokens)
            return finish
        self.constrained.took(running, seconds, num_tokens)
        return self.slow.charge(running, seconds, place_of(running.request), num_tokens)

    # -- the life of a request --------------------------------------------------------------------------------------

    def begin(self, running: RunningRequest) -> Finish | None:
        """It runs. Returns why it ends, if its constraint leaves nothing to compute."""
        if running.request.flags & RowFlag.CONSTRAINED:
            return self._timed(running, self.constrained.begin)
        if running.request.params.stop_regex:
            self.patterns.begin(running)
        return None

    def _timed(self, running: RunningRequest, act: Act) -> Finish | None:
        """Do something for a constraint and charge its request. Returns why the request ends, if so."""
        begun_s, before = time.thread_time(), running.num_output
        finish = act(running)
        seconds, num_tokens = time.thread_time() - begun_s, max(running.num_output - before, 1)
        return self._took(running, finish, seconds, num_tokens)

    def settle(self, alone: bool) -> Iterator[tuple[RunningRequest, Finish]]:
        """Between two steps: what was parsed aside is known, and may end its request, which the caller does before it
        asks for the next one. `alone`: nothing else can run.
        """
        yield from self.constrained.aside.settle_held(alone)
        for running in self._late.due():
            if not running.request.flags & RowFlag.CONSTRAINED:
                finish = self.patterns.catch_up(running)
            else:
                finish = self._timed(running, self.constrained.catch_up)
            if finish is not None:
                yield running, finish
        self.slow.release_due(alone)

    def close(self, request: Request) -> None:
        """It has ended, or never ran."""
        if (constrained := request.own.get(Constrained)) is not None:
            self.constrained.send_unsent(request)
            constrained.leave()
        self.patterns.forget(request.uid)
        self.slow.forget(request.uid)
