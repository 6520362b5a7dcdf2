"""From a step's result to requests that go on or end, and to the one message that says so. The end of Algorithm 1.

Decides publishing and the order of messages: a request is opened before its first token and closed after its last, and
every one that was accepted is closed exactly once. Results are matched by (uid, epoch): those of a request that has
ended or was retracted since the step was planned are dropped. Knows running requests, not the policy. What is made
of a result beside tokens is called only for steps, rows and requests that asked for it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from ramet.ipc.channel import Outbox
from ramet.ipc.messages import Closed, Finish, FinishKind, Opened
from ramet.runtime.arrays import Flags, Ints
from ramet.runtime.engine.batch import StepResult
from ramet.runtime.scheduler.feature import AnswerReader, LateReader, RequestLife, StepApplied
from ramet.runtime.scheduler.news import News
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.scheduler.step import Step
from ramet.runtime.scheduler.stopping import Stopping

log = logging.getLogger("ramet")
NOT_FINITE = "the model produced logits that are not finite"


@dataclass(frozen=True, slots=True)
class BesideResults:
    """What is made of results beside tokens, each called only where it was asked for."""

    answers: AnswerReader  # of steps that asked for more than tokens
    late: LateReader  # rows with a bit of RowFlag.TOLD_LATE
    life: RequestLife  # of requests with the bit RowFlag.WATCHED
    applied: Sequence[StepApplied] = ()  # called with every step


class Results:
    """Applies step results to the running set and sends what is new to the detokenizer."""

    def __init__(
        self, running: RunningSet, stopping: Stopping, news: News, beside: BesideResults, detokenizer: Outbox,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._running, self._stopping, self.news, self._detokenizer = running, stopping, news, detokenizer
        self._answers, self._late, self._life, self._clock = beside.answers, beside.late, beside.life, clock
        self._applied = beside.applied
        self.eos_ids, self._eos_ids = stopping.eos_ids, sorted(stopping.eos_ids)
        self.cached_tokens = 0  # prompt tokens that were found in the tree
        self.discarded_tokens = 0  # drawn for requests that had ended meanwhile
        self.finished_requests = 0

    # -- a step -----------------------------------------------------------------------------------------------------

    def apply(self, step: Step, result: StepResult, begun_s: float = 0.0) -> None:
        """Advance every row that still is what the step was planned for; requests that end give their rows back.

        `begun_s`: when its planning began.
        """
        rows, table = step.batch.rows, self._running.table
        going = self._advance(step)
        if result.broken or step.owners:
            going = self._answers.begin(step, result, going)
        ends: dict[int, Finish] = {}  # index of the row -> why it ends
        if result.broken or result.failures:
            ends = self._failures(step, result, going)
            going = going.copy()
            going[list(ends)] = False
        now_s = self._clock() if len(step.prefills) else 0.0
        for index in step.prefills[going[step.prefills]]:
            running = self._running.at(rows[index])
            running.request.times.computed(begun_s, now_s, int(step.batch.num_new[index]))
            self._publish(running, now_s)
        draws, tokens = step.batch.draws, result.tokens
        if not going.all():
            kept = going[draws]
            draws, tokens = draws[kept], tokens[kept]
        self._append_tokens(rows[draws], tokens)
        if step.returns_more:
            self._answers.read(step, result, going)
        ends |= self._finished(rows, draws, tokens)
        for index in step.prefills[going[step.prefills]]:  # max_new_tokens is 0: nothing was drawn
            if table.applied[rows[index]] == table.limits[rows[index]]:
                ends[int(index)] = Finish(FinishKind.LENGTH, length=0)
        if step.returns_more or self._answers.apart:
            self._answers.end(step, result, going, ends)
        for index in sorted(ends):
            self.end(self._running.at(rows[index]), ends[index])
        self._running.memory.deferred.confirm(step.number)

    def _advance(self, step: Step) -> Flags:
        """Note what was computed. Returns [R] rows that still are what the step was planned for."""
        rows, table = step.batch.rows, self._running.table
        alive: Flags = (table.uids[rows] == step.uids) & (table.epochs[rows] == step.epochs)
        if alive.all():
            table.applied[rows] += step.batch.num_new
        else:
            self.discarded_tokens += int((~alive[step.batch.draws]).sum())
            table.applied[rows[alive]] += step.batch.num_new[alive]
        for applied in self._applied:
            applied(step, alive)
        return alive

    def _publish(self, running: RunningRequest, now_s: float) -> None:
        """Share what is computed of its prompt."""
        self._running.memory.publish(running)
        request = running.request
        if running.applied >= request.prompt_len:
            request.times.prefilled_s = request.times.prefilled_s or now_s
            if request.flags & RowFlag.WATCHED:
                self._life.computed(request)

    def _failures(self, step: Step, result: StepResult, alive: Flags) -> dict[int, Finish]:
        draws = step.batch.draws
        found = {int(draws[i]): Finish.abort("", NOT_FINITE, status=500) for i in result.broken}
        for i, why, status in result.failures:
            found[int(draws[i])] = Finish.abort("", why, status=status)
        return {index: finish for index, finish in found.items() if alive[index]}

    def _append_tokens(self, rows: Ints, tokens: Ints) -> None:
        """rows [D] of the table drew tokens [D]. Tokens of rows that are told late are not told here."""
        table = self._running.table
        table.tokens[rows, table.totals[rows]] = tokens
        table.totals[rows] += 1
        free = (table.flags[rows] & RowFlag.TOLD_LATE) == 0
        if not free.all():
            self._late.begin_step()
            rows, tokens = rows[free], tokens[free]
        self.news.add_tokens(table.uids[rows], tokens)

    def _finished(self, rows: Ints, draws: Ints, tokens: Ints) -> dict[int, Finish]:
        """Rows that end with the tokens that they drew, by index; only those that may are looked at.

        rows [R] of the table, draws [D] indices into it, tokens [D]
        """
        table, drew = self._running.table, rows[draws]
        may_end = table.totals[drew] == table.limits[drew]
        flags = table.flags[drew]
        may_end |= (flags & (RowFlag.STOP_CHECK | RowFlag.MASKED)) != 0
        for eos in self._eos_ids:
            may_end |= (tokens == eos) & ((flags & RowFlag.IGNORE_EOS) == 0)
        ends: dict[int, Finish] = {}
        for i in np.flatnonzero(may_end):
            decide = self._late.token if flags[i] & RowFlag.TOLD_LATE else self._stopping.decide
            finish = decide(self._running.at(drew[i]), int(tokens[i]))
            if finish is not None:
                ends[int(draws[i])] = finish
        return ends

    # -- the life of a request --------------------------------------------------------------------------------------

    def open(self, running: RunningRequest) -> bool:
        """Say that a request runs; once in its life. False: nothing is left to compute for it, it has ended."""
        request = running.request
        self.cached_tokens += 0 if request.opened else request.cached_tokens or 0
        self._open(request)
        finish = self._life.begin(running) if request.flags & RowFlag.WATCHED else None
        if finish is not None:
            self.end(running, finish)
        return finish is None

    def close_waiting(self, request: Request, finish: Finish) -> None:
        """End a request that does not run."""
        self._open(request)
        self._close(request, finish)

    def close_running(self, running: RunningRequest, finish: Finish) -> None:
        """End a request between two steps with an error; what it computed is sound and stays cached."""
        self._open(running.request)
        returned = self._life.end(running, finish) if running.request.flags & RowFlag.WATCHED else b""
        self._running.end(running)
        self._close(running.request, finish, returned)

    def fail(self, running: RunningRequest, fact: str) -> None:
        """End a request between two steps with an error of ours: the request `fact`."""
        log.error("request %d ends: it %s", running.uid, fact)
        self.close_running(running, Finish.abort("", f"internal error: the request {fact}", status=500))

    def end(self, running: RunningRequest, finish: Finish) -> None:
        """End a request that runs; what it computed is shared unless it failed."""
        if running.request.flags & RowFlag.PART:
            return self._life.park(running)
        returned = self._life.end(running, finish) if running.request.flags & RowFlag.WATCHED else b""
        self._running.end(running, publish=not finish.aborted)
        self._close(running.request, finish, returned)

    def send(self) -> None:
        """One message for the whole step."""
        message = self.news.take()
        if message is not None:
            self._detokenizer.send(message)

    def _open(self, request: Request) -> None:
        if request.opened:
            return
        request.opened = True
        cached = request.cached_tokens or 0
        ids = request.prompt.tobytes() if request.spec.returns_prompt else b""
        opened = Opened(
            request.uid, request.spec.detokenize_options, request.prompt_len, cached, ids, request.start.num_bytes
        )
        self.news.opened.append(opened)
        if request.flags & RowFlag.WATCHED:
            self._life.open(request)

    def _close(self, request: Request, finish: Finish, returned: bytes = b"") -> None:
        if request.flags & RowFlag.WATCHED or request.uid in self._answers.apart:
            self._life.close(request, finish)
        self._stopping.forget(request.uid)
        self.finished_requests += 1
        ended = replace(finish, num_retractions=request.num_retractions)
        self.news.closed.append(Closed(request.uid, ended, returned, request.times.until(self._clock())))
