"""From a step's result to requests that go on or end, and to the one message that says so. Algorithm 1, last part.

Decides publishing and the order of messages: a request is opened before its first token and closed after its last, and
every one that was accepted is closed exactly once. Results are matched by (uid, epoch): those of a request that has
ended or was retracted since the step was planned are dropped. Knows running requests, not the policy.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ramet.ipc.channel import Outbox
from ramet.ipc.message import Uid
from ramet.ipc.messages import ID_BYTES, Closed, Finish, FinishKind, HiddenStates, Logprobs, Opened, TokenStep
from ramet.runtime.arrays import Floats, Ints
from ramet.runtime.engine.batch import Pooler, StepResult
from ramet.runtime.sampling.columns import HealedPlace, PlaceLogprobs
from ramet.runtime.scheduler.features.constraints import ConstrainedRows, place_of
from ramet.runtime.scheduler.features.follow_ups import FollowUps
from ramet.runtime.scheduler.features.healing import HealedRows
from ramet.runtime.scheduler.features.hidden import HiddenSpan
from ramet.runtime.scheduler.features.logprobs import PromptSpan
from ramet.runtime.scheduler.features.masks import fill_mask
from ramet.runtime.scheduler.features.pooled import Pooled, add_states, through_heads
from ramet.runtime.scheduler.features.prefix_leases import PrefixLeases
from ramet.runtime.scheduler.features.routes import ReturnedRoutes
from ramet.runtime.scheduler.features.slow_rows import LateRows, SlowRows
from ramet.runtime.scheduler.features.stop_patterns import PatternRows
from ramet.runtime.scheduler.features.unsound import UnsoundPrefixes
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.rows import RowFlag, RunningRequest
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.scheduler.step import Step
from ramet.runtime.scheduler.stopping import Stopping

log = logging.getLogger("ramet")
UNKNOWN = np.array([np.nan], dtype=np.float32).tobytes()  # of the first prompt token that is asked about
NOT_FINITE = "the model produced logits that are not finite"
Flags = npt.NDArray[np.bool_]


@dataclass(slots=True)
class _News:
    uids: list[Uid] = field(default_factory=list)
    tokens: bytearray = field(default_factory=bytearray)
    opened: list[Opened] = field(default_factory=list)
    closed: list[Closed] = field(default_factory=list)
    logprobs: list[Logprobs] = field(default_factory=list)
    hidden: list[HiddenStates] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.uids or self.opened or self.closed or self.logprobs or self.hidden)


class Results:
    """Applies step results to the running set and sends what is new to the detokenizer."""

    def __init__(
        self,
        running: RunningSet,
        leases: PrefixLeases,
        follow_ups: FollowUps,
        stopping: Stopping,
        routes: ReturnedRoutes,
        detokenizer: Outbox,
        pooler: Pooler | None,
        clock: Callable[[], float],
        budget_s: float,
    ) -> None:
        """`budget_s`: processor time that one request's stop patterns and constraint may take on this thread."""
        self._routes, self._pooler, self._clock = routes, pooler, clock
        self._running, self.leases, self._follow_ups = running, leases, follow_ups
        self._stopping, self._detokenizer = stopping, detokenizer
        self.eos_ids, self._eos_ids = stopping.eos_ids, sorted(stopping.eos_ids)
        self.slow = SlowRows(running, budget_s, clock)
        self._late = LateRows(running, self.slow)
        decide, send = self._decide, self._add_token
        self.constrained = ConstrainedRows(
            running, self.slow, self._late, decide=decide, rewound=stopping.rewound, send=send, fill=fill_mask
        )
        self._patterns = PatternRows(running, self.slow, self._late, decide=decide, send=send)
        self.healed = HealedRows(running, self.constrained, push=self._push_free, send=send, show=self._add_states)
        self.unsound = UnsoundPrefixes(running, leases)
        self._news = _News()
        self.generated_tokens = 0
        self.cached_tokens = 0  # prompt tokens that were found in the tree
        self.discarded_tokens = 0  # drawn for requests that had ended meanwhile
        self.finished_requests = 0

    # -- a step -----------------------------------------------------------------------------------------------------

    def apply(self, step: Step, result: StepResult, begun_s: float = 0.0) -> None:
        """Advance every row that still is what the step was planned for; requests that end give their rows back.

        `begun_s`: when its planning began.
        """
        rows, table = step.batch.rows, self._running.table
        alive = (table.uids[rows] == step.uids) & (table.epochs[rows] == step.epochs)
        if alive.all():
            table.applied[rows] += step.batch.num_new
        else:
            self.discarded_tokens += int((~alive[step.batch.draws]).sum())
            table.applied[rows[alive]] += step.batch.num_new[alive]
        if self._running.states is not None:
            self._running.states.apply(step.number, rows, alive)
        tells = result.broken or step.owners
        again = self._computed_again(step, result, alive) if tells else []
        going = alive
        if again:
            going = alive.copy()
            going[again] = False
        if step.owners:
            self._add_prompt_logprobs(step, result, going)
        ends = self._failures(step, result, going)  # index of the row -> why it ends
        if ends:
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
        drawn = dict(self._drawn_logprobs(step, result, going))
        healed = self._healed_places(step, result)
        held = self._hold_hidden(step, result, going, healed) if healed else set()
        ends |= self._finished(step, draws, tokens, going, drawn, healed)
        self._news.logprobs += drawn.values()
        if step.owners:
            self._add_hidden(step, result, going, ends, held)
        if self.unsound.apart:
            done = [index for index, finish in ends.items() if not finish.aborted]
            self.unsound.are_finite(table.uids[rows[[*draws, *done]]].tolist())
        for index in sorted(ends):
            self._end(self._running.at(rows[index]), ends[index])
        self._running.left.confirm(step.number)

    def _publish(self, running: RunningRequest, now_s: float) -> None:
        """Share what is computed of its prompt; the lease that it asked for begins with the last of it."""
        self._running.publish(running)
        request = running.request
        if running.applied >= request.prompt_len:
            request.times.prefilled_s = request.times.prefilled_s or now_s
            if running.uid in self.leases.open:
                self.leases.begin(request)

    def _failures(self, step: Step, result: StepResult, alive: Flags) -> dict[int, Finish]:
        draws = step.batch.draws
        found = {int(draws[i]): Finish.abort("", NOT_FINITE, status=500) for i in result.broken}
        for i, why, status in result.failures:
            found[int(draws[i])] = Finish.abort("", why, status=status)
        return {index: finish for index, finish in found.items() if alive[index]}

    def _computed_again(self, step: Step, result: StepResult, alive: Flags) -> list[int]:
        """Indices of rows with results that are not finite, whose requests are computed once more instead of ending.

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
        return [index for index in sorted(broken) if alive[index] and not self.unsound.may_end(at(rows[index]))]

    def _append_tokens(self, rows: Ints, tokens: Ints) -> None:
        """rows [D] of the table drew tokens [D]. Those that may lead to more are told with that."""
        table = self._running.table
        table.tokens[rows, table.totals[rows]] = tokens
        table.totals[rows] += 1
        free = (table.flags[rows] & RowFlag.TOLD_LATE) == 0
        if not free.all():
            rows, tokens = rows[free], tokens[free]
        self.generated_tokens += len(rows)
        self._news.uids += table.uids[rows].tolist()
        self._news.tokens += tokens.tobytes()

    def _add_token(self, uid: Uid, token: int, logprobs: Logprobs | None) -> None:
        self.generated_tokens += 1
        self._news.uids.append(uid)
        self._news.tokens += token.to_bytes(ID_BYTES, "little")
        if logprobs is not None:
            self._news.logprobs.append(logprobs)

    def _finished(
        self,
        step: Step,
        draws: Ints,
        tokens: Ints,
        going: Flags,
        logprobs: dict[int, Logprobs],
        healed: dict[int, HealedPlace],
    ) -> dict[int, Finish]:
        """Rows that end with this step; of those at `draws` only those that may are looked at.

        WRITES `logprobs`, by row: those of tokens that are told late are taken out, and told with them.
        `healed`, by row: of those whose prompt is healed.
        """
        self._late.begin_step()
        table, rows = self._running.table, step.batch.rows[draws]
        may_end = table.totals[rows] == table.limits[rows]
        flags = table.flags[rows]
        may_end |= (flags & (RowFlag.STOP_CHECK | RowFlag.MASKED)) != 0
        for eos in self._eos_ids:
            may_end |= (tokens == eos) & ((flags & RowFlag.IGNORE_EOS) == 0)
        ends: dict[int, Finish] = {}
        for i in np.flatnonzero(may_end):
            running, token = self._running.at(rows[i]), int(tokens[i])
            if flags[i] & RowFlag.HEALING:
                index = int(draws[i])
                finish = self._push_healed(running, token, healed[index], logprobs.pop(index, None))
            elif flags[i] & RowFlag.CONSTRAINED:
                finish = self._push(running, token, logprobs.pop(int(draws[i]), None))
            elif flags[i] & RowFlag.PATTERNS:
                finish = self._patterns.push(running, token, logprobs.pop(int(draws[i]), None))
            else:
                finish = self._decide(running, token)
            if finish is not None:
                ends[int(draws[i])] = finish
        for index in step.prefills[going[step.prefills]]:  # max_new_tokens is 0: nothing was drawn
            row = step.batch.rows[index]
            if table.applied[row] == table.limits[row]:
                ends[int(index)] = Finish(FinishKind.LENGTH, length=0)
        return ends

    def _push(self, running: RunningRequest, token: int, logprobs: Logprobs | None) -> Finish | None:
        begun_s, before = time.thread_time(), running.num_output
        finish = self.constrained.push(running, token, logprobs)
        return self._pushed(running, finish, time.thread_time() - begun_s, before)

    def _push_free(self, running: RunningRequest, token: int, logprobs: Logprobs | None) -> Finish | None:
        """The last token of its output, which nobody knows of yet."""
        if running.request.params.stop_regex:
            return self._patterns.push(running, token, logprobs)
        self._add_token(running.uid, token, logprobs)
        return self._decide(running, token)

    def _push_healed(
        self, running: RunningRequest, token: int, place: HealedPlace, logprobs: Logprobs | None
    ) -> Finish | None:
        if running.request.constrained is None:
            return self.healed.push(running, token, place, logprobs)
        begun_s, before = time.thread_time(), running.num_output
        finish = self.healed.push(running, token, place, logprobs)
        return self._pushed(running, finish, time.thread_time() - begun_s, before)

    def _pushed(self, running: RunningRequest, finish: Finish | None, seconds: float, before: int) -> Finish | None:
        """Charge a request what its constraint took for the token that was drawn, and for its mask.

        `before`: tokens of its output then.
        """
        constrained, num_tokens = running.request.constrained, max(running.num_output - before + 1, 1)
        assert constrained is not None, running.uid
        self._late.step.spend(seconds, num_tokens)
        seconds, constrained.mask_s = seconds + constrained.mask_s, 0.0
        return self._took(running, finish, seconds, num_tokens)

    def _took(self, running: RunningRequest, finish: Finish | None, seconds: float, num_tokens: int) -> Finish | None:
        if finish is None:
            self.constrained.took(running, seconds, num_tokens)
        return self._charged(running, finish, seconds, num_tokens)

    def _charged(
        self, running: RunningRequest, finish: Finish | None, seconds: float, num_tokens: int
    ) -> Finish | None:
        """`finish`: why the request ends, if it does anyhow."""
        if finish is None:
            return self.slow.charge(running, seconds, place_of(running.request), num_tokens)
        self.slow.spend(seconds, num_tokens)
        return finish

    def _decide(self, running: RunningRequest, token: int) -> Finish | None:
        try:
            return self._stopping.decide(running, token)
        except Exception as error:
            log.exception("request %d failed while looking for its stop text", running.uid)
            return Finish.abort("", f"internal error: {type(error).__name__}", status=500)

    # -- log-probabilities and hidden states ------------------------------------------------------------------------

    def _add_prompt_logprobs(self, step: Step, result: StepResult, alive: Flags) -> None:
        for span, values in step.answered(PromptSpan, result):
            if not alive[span.index]:
                continue
            request = self._running.at(step.batch.rows[span.index]).request
            request.next_logprob = span.stop if span.stop < request.prompt_len else None
            news = self._news.logprobs if request.part is None else request.part.logprobs
            news.append(_packed(request.uid, True, request.ids(span.start, span.stop), values))

    def _drawn_logprobs(self, step: Step, result: StepResult, going: Flags) -> Iterator[tuple[int, Logprobs]]:
        """By index of the row."""
        for asked, values in zip(step.batch.sampling.logprobs, result.drawn_logprobs, strict=True):
            index = int(step.batch.draws[asked.row])
            if going[index]:
                token = result.tokens[asked.row : asked.row + 1]
                yield index, _packed(Uid(int(step.uids[index])), False, token, values)

    def _healed_places(self, step: Step, result: StepResult) -> dict[int, HealedPlace]:
        """By index of the row."""
        rows = (int(step.batch.draws[each.row]) for each in step.batch.sampling.healed)
        return dict(zip(rows, result.healed, strict=True))

    def _hold_hidden(self, step: Step, result: StepResult, going: Flags, healed: dict[int, HealedPlace]) -> set[int]:
        """Indices of rows whose hidden states wait until it is known which tokens heal their prompt."""
        held = set[int]()
        for span, states in step.answered(HiddenSpan, result):
            if span.index in healed and going[span.index] and not span.last:
                running = self._running.at(step.batch.rows[span.index])
                if span.start >= running.request.prompt_len:
                    held.add(span.index)
                    self.healed.hold(running, states)
        return held

    def _add_states(self, states: HiddenStates) -> None:
        self._news.hidden.append(states)

    def _add_hidden(
        self, step: Step, result: StepResult, going: Flags, ends: dict[int, Finish], held: set[int]
    ) -> None:
        pooled = list[Pooled]()
        for span, states in step.answered(HiddenSpan, result):
            if not going[span.index] or span.index in held or (span.last and span.index not in ends):
                continue
            request = self._running.at(step.batch.rows[span.index]).request
            request.next_hidden = span.stop
            if request.part is not None:
                request.part.states.append(states)
            elif (returned := add_states(request, states)) is not None:
                pooled.append((request, returned))
        if pooled:
            for request, states in through_heads(self._pooler, pooled):
                self._add_states(_states(request.uid, states))

    # -- the life of a request --------------------------------------------------------------------------------------

    def open(self, running: RunningRequest) -> bool:
        """Say that a request runs; once in its life. False: its constraint leaves nothing to compute, it has ended."""
        self.cached_tokens += 0 if running.request.opened else running.request.cached_tokens or 0
        self._open(running.request)
        if running.request.base is not None:
            self._add_parts(running.request)
        if running.request.constrained is None:
            if running.request.params.stop_regex:
                self._patterns.begin(running)
            return True
        finish = self._timed(running, self.constrained.begin)
        if finish is not None:
            self._end(running, finish)
        return finish is None

    def _timed(self, running: RunningRequest, act: Callable[[RunningRequest], Finish | None]) -> Finish | None:
        """Do something for a constraint and charge its request. Returns why the request ends, if so."""
        begun_s, before = time.thread_time(), running.num_output
        finish = act(running)
        seconds, num_tokens = time.thread_time() - begun_s, max(running.num_output - before, 1)
        return self._took(running, finish, seconds, num_tokens)

    def _add_parts(self, request: Request) -> None:
        """What was computed of the parts of its prompt is told once it is open."""
        assembly = self._running.parts.assemblies[request.uid]
        self._news.logprobs += [replace(each, uid=request.uid) for each in assembly.logprobs]
        for states in assembly.states:
            if (returned := add_states(request, states)) is not None:
                self._add_states(_states(request.uid, returned))

    def close_waiting(self, request: Request, finish: Finish) -> None:
        """End a request that does not run."""
        self._open(request)
        self._close(request, finish)

    def close_running(self, running: RunningRequest, finish: Finish) -> None:
        """End a request between two steps; what it computed is sound and stays cached."""
        self._open(running.request)
        routes = self._routes.of(running) if running.request.returns_routes else b""
        self._running.end(running)
        self._close(running.request, finish, routes)

    def fail(self, running: RunningRequest, fact: str) -> None:
        """End a request between two steps with an error of ours: the request `fact`."""
        log.error("request %d ends: it %s", running.uid, fact)
        self.close_running(running, Finish.abort("", f"internal error: the request {fact}", status=500))

    def settle_aside(self, alone: bool) -> None:
        """Between two steps: what was parsed aside is known, and may end its request. `alone`: nothing else can run."""
        for running, finish in self.constrained.aside.settle_held(alone):
            self._end(running, finish)
        for running in self._late.due():
            if (ended := self._catch_up(running)) is not None:
                self._end(running, ended)
        self.slow.release_due(alone)

    def _catch_up(self, running: RunningRequest) -> Finish | None:
        """Do what a step had no time for. Returns why the request ends, if so."""
        if running.request.constrained is None:
            return self._patterns.catch_up(running)
        return self._timed(running, self.constrained.catch_up)

    def send(self) -> None:
        """One message for the whole step."""
        if self._news:
            news, self._news = self._news, _News()
            self._detokenizer.send(
                TokenStep(news.uids, bytes(news.tokens), news.opened, news.closed, news.logprobs, news.hidden)
            )

    def tell_weights(self, number: int) -> None:
        """What is told from now on is computed with the weights of this number. All that came before is sent."""
        self._detokenizer.send(TokenStep([], b"", weights=number))

    def _end(self, running: RunningRequest, finish: Finish) -> None:
        if running.request.part is not None:
            return self._running.park(running)
        follow_up = running.request.spec.follow_up
        if follow_up is not None and not finish.aborted and running.request.base is None:
            self._running.publish_all(running)
            added, num_calls = running.total - (running.request.cached_tokens or 0), running.request.num_calls + 1
            self._follow_ups.keep(follow_up, running.lease, added, num_calls)
        routes = self._routes.of(running) if running.request.returns_routes else b""
        self._running.end(running, publish=not finish.aborted)
        self._close(running.request, finish, routes)

    def _open(self, request: Request) -> None:
        if request.opened:
            return
        request.opened = True
        cached = request.cached_tokens or 0
        ids = request.prompt.tobytes() if request.spec.returns_prompt else b""
        opened = Opened(request.uid, request.spec.of_output, request.prompt_len, cached, ids, request.tail_bytes)
        self._news.opened.append(opened)
        start = request.first_logprob
        if start is not None and start < request.prompt_len:
            first = request.ids(start, start + 1)
            self._news.logprobs.append(Logprobs(request.uid, True, first.tobytes(), UNKNOWN))

    def _close(self, request: Request, finish: Finish, routes: bytes = b"") -> None:
        if request.constrained is not None:
            self.constrained.send_unsent(request)
            request.constrained.leave()
        self._stopping.forget(request.uid)
        if request.params.stop_regex:
            self._patterns.forget(request.uid)
        self.slow.forget(request.uid)
        if request.is_apart or self.unsound.apart:
            self.unsound.forget(request)
        if request.uid in self.leases.open:
            (self.leases.withdraw if finish.aborted else self.leases.keep)(request.uid)
        self.finished_requests += 1
        ended = replace(finish, num_retractions=request.num_retractions)
        self._news.closed.append(Closed(request.uid, ended, routes, request.times.until(self._clock())))


def _packed(uid: Uid, of_prompt: bool, ids: Ints, values: PlaceLogprobs) -> Logprobs:
    return Logprobs(
        uid,
        of_prompt,
        ids.tobytes(),
        values.values.tobytes(),
        values.top_ids.tobytes(),
        values.top_values.tobytes(),
        values.chosen.tobytes(),
    )


def _states(uid: Uid, states: Floats) -> HiddenStates:
    return HiddenStates(uid, states.shape[1], states.tobytes())
