"""Rows whose outputs keep to a constraint: what follows from a token that was drawn, and what needs no draw.

Decides the order of a drawn token's consequences: it is accepted, may end the request, and is followed by the tokens
that the constraint leaves no choice about (jump-forward). Those are known to everybody as if they had been drawn.
Knows no library and no device. K rows that draw under a constraint, W words of a mask.
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from ramet.ipc.message import Uid
from ramet.ipc.messages import Finish, FinishKind, Logprobs
from ramet.runtime.arrays import Ints
from ramet.runtime.grammar.base import MAX_FORCED_BYTES
from ramet.runtime.grammar.output import MAX_FORCED, Jump
from ramet.runtime.scheduler.features.aside import AsideRows
from ramet.runtime.scheduler.features.constrained import Constrained
from ramet.runtime.scheduler.features.constraints import failed
from ramet.runtime.scheduler.features.logprobs import logprob_row
from ramet.runtime.scheduler.features.returned import next_logprob
from ramet.runtime.scheduler.features.rewriting import RewrittenRows
from ramet.runtime.scheduler.features.slow_rows import LateRows, SlowRows
from ramet.runtime.scheduler.features.stop_patterns import forced_bytes
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest

SMALLEST = np.finfo(np.float32).min  # the log-probability of a token that cannot be drawn


Send = Callable[[Uid, int, Logprobs | None], None]


Decide = Callable[[RunningRequest, int], Finish | None]


MAX_TURN_FORCED = 2 * MAX_FORCED  # tokens that jumps of all rows append in a turn, beside FREE_FORCED of each row


FREE_FORCED = 32  # what ordinary schemas force at once is less


class ConstrainedRows:
    """Carries tokens into the outputs of running requests.

    `decide` says whether a token ends its request, `rewound` is told when known tokens have changed, and `send` tells
    the client of one more token. `fill` makes a mask between two steps; False: the output has none.

    `slow` says when a turn's time is spent: then no row looks for what is forced next. What a step has drawn is not
    accepted any more when `late` says that the step has no time for it. Such rows, and those whose step had no time for
    their mask, are held out of steps until that is done in a later turn, in order.
    """

    def __init__(
        self,
        rewritten: RewrittenRows,
        slow: SlowRows,
        late: LateRows,
        aside: AsideRows,
        *,
        decide: Decide,
        rewound: Callable[[RunningRequest], None],
        send: Send,
        fill: Callable[[RunningRequest, Ints], bool],
    ) -> None:
        self._rewritten, self._slow, self._late = rewritten, slow, late
        self._decide, self._rewound, self._send, self._fill = decide, rewound, send, fill
        self._turn, self._left = 0, MAX_TURN_FORCED  # tokens that jumps may still append in this turn
        self.aside = aside
        self.forced_tokens = 0  # that nobody drew

    def catch_up(self, running: RunningRequest) -> Finish | None:
        """Do what an earlier turn had no time for: accept tokens, make a mask, or look for what follows."""
        constrained = _of(running)
        constrained.parse_s = 0.0
        if constrained.postponed is not None:
            act, constrained.postponed = constrained.postponed, None
            return act(running)
        if constrained.late_mask is not None:
            return self._fill_late(running, constrained)
        return self._look(running, constrained)

    def _look(self, running: RunningRequest, constrained: Constrained) -> Finish | None:
        """What follows the last token without a draw."""
        finish = self._jump_on(running, constrained)
        self._flush(running, finish)
        if finish is None and constrained.output.pending:
            self.aside.hold(running)
        return finish

    def _fill_late(self, running: RunningRequest, constrained: Constrained) -> Finish | None:
        bits, constrained.late_mask = constrained.late_mask, None
        assert bits is not None, running.uid
        begun_s = time.perf_counter()
        if not constrained.output.pending and self._fill(running, bits):
            constrained.ready = bits
        constrained.parse_s = time.perf_counter() - begun_s
        if constrained.output.pending:
            self.aside.hold(running)
        return constrained.failure

    def begin(self, running: RunningRequest) -> Finish | None:
        """What the output begins with whatever the model says is computed together with the prompt."""
        request, constrained = running.request, _of(running)
        constrained.late_mask = constrained.ready = None  # of its earlier row
        constrained.parse_s = 0.0
        if constrained.postponed is not None:
            self._late.wait(running)
            return None
        if running.remaining and constrained.output.pending:
            self.aside.hold(running)
            return None
        if next_logprob(request) is not None or not running.remaining or request.flags & RowFlag.HEALING:
            return None  # something is returned of the prompt: it must be computed in any case
        return self._look(running, constrained)

    def begin_with(
        self, running: RunningRequest, told: list[tuple[int, Logprobs | None]], beyond: bytes, spelled: list[int]
    ) -> Finish | None:
        """Its whole output are the tokens `told`, whose last one has `beyond` the prompt's end, spelled by others."""
        if self._late.is_late(running):
            self._postpone(running, partial(self._begin_with, told=told, beyond=beyond, spelled=spelled))
            return None
        return self._begin_with(running, told, beyond, spelled)

    def _begin_with(
        self, running: RunningRequest, told: list[tuple[int, Logprobs | None]], beyond: bytes, spelled: list[int]
    ) -> Finish | None:
        constrained = _of(running)
        constrained.unsent += told
        try:
            constrained.output.begin_with(beyond, spelled)
        except Exception as error:  # noqa: BLE001 - of a library, which raises anything
            return failed(running.request, error)
        ended = Finish(FinishKind.STOP) if constrained.output.ended else None
        finish = ended or self._decide(running, told[-1][0]) or self._jump_on(running, constrained)
        self._flush(running, finish)
        if finish is None and constrained.output.pending:
            self.aside.hold(running)
        return finish

    def push(self, running: RunningRequest, token: int, logprobs: Logprobs | None) -> Finish | None:
        """`token` was drawn. Why its request ends, with it or with one that had to follow."""
        constrained = _of(running)
        constrained.parse_s = constrained.mask_s
        if constrained.failure is not None:
            return constrained.failure
        if constrained.undo:
            self.take_back(running, constrained)
            return None
        if self._late.is_late(running):
            self._postpone(running, partial(self._push, token=token, logprobs=logprobs))
            return None
        return self._push(running, token, logprobs)

    def _postpone(self, running: RunningRequest, act: Callable[[RunningRequest], Finish | None]) -> None:
        _of(running).postponed = act
        self._late.wait(running)

    def _push(self, running: RunningRequest, token: int, logprobs: Logprobs | None) -> Finish | None:
        constrained = _of(running)
        finish, jump = self._take(running, constrained, token, logprobs)
        if finish is None and jump is not None:
            done, finish = self._apply(running, constrained, jump)
            if not done:  # one token takes no memory; the others are drawn
                done, finish = self._apply(running, constrained, Jump(jump.num_dropped, jump.tokens[:1]))
                assert done, running.uid
                constrained.output.expect(jump.tokens[1:])
        if finish is None:
            finish = self._jump_on(running, constrained)
        self._flush(running, finish)
        if finish is None and constrained.output.pending:
            self.aside.hold(running)
        return finish

    def took(self, running: RunningRequest, seconds: float, num_tokens: int) -> None:
        """Note the processor time of its last tokens, everything included. Moves aside an output that is too slow."""
        constrained = _of(running)
        if constrained.output.took(min(constrained.parse_s, seconds) / num_tokens):
            self.aside.hold(running)

    def take_back(self, running: RunningRequest, constrained: Constrained) -> None:
        """What was drawn had no mask."""
        constrained.undo = False
        self._rewritten.take_back(running)
        if constrained.output.pending:
            self.aside.hold(running)
        elif constrained.late_mask is not None:
            self._late.wait(running)

    def _jump_on(self, running: RunningRequest, constrained: Constrained) -> Finish | None:
        request = running.request
        if running.applied < request.prompt_len and request.spec.prefix_lease_s is not None:
            return None  # the prompt is kept for a client: it must be computed even if the output ends without a step
        if self._slow.is_spent and constrained.output.may_jump:
            self._late.wait(running)
            return None
        if self._turn != self._slow.turn:
            self._turn, self._left = self._slow.turn, MAX_TURN_FORCED
        if constrained.forced_bytes is None:
            constrained.forced_bytes = forced_bytes(request.params.stop_regex)
        before = self.forced_tokens
        while self.forced_tokens - before < MAX_FORCED:
            most = min(max(self._left, FREE_FORCED), MAX_FORCED)
            begun_s = time.perf_counter()
            try:
                jump = constrained.output.next_jump(running.output, constrained.forced_bytes, most)
            except Exception as error:  # noqa: BLE001 - as in `_take`: it tries what it appends
                return failed(request, error)
            constrained.parse_s += time.perf_counter() - begun_s
            if jump is None:
                return None
            self._left -= max(len(jump.tokens) - FREE_FORCED, 0)
            done, finish = self._apply(running, constrained, jump)
            if finish is not None or not done:  # without memory for it the tokens are drawn one by one
                return finish
            if constrained.forced_bytes < MAX_FORCED_BYTES or most < MAX_FORCED:
                return None
        return None  # the next token is drawn, and more are appended then: others wait for this step

    def _apply(self, running: RunningRequest, constrained: Constrained, jump: Jump) -> tuple[bool, Finish | None]:
        """Whether there was memory for it, and why the request ends with one of its tokens."""
        tokens, finish = jump.tokens[: running.remaining + jump.num_dropped], None
        if not self._rewritten.replace(running, jump.num_dropped, len(tokens)):
            return False, None
        if jump.num_dropped:
            constrained.output.drop(jump.num_dropped)
            del constrained.unsent[-jump.num_dropped :]
            self._rewound(running)
        for num, token in enumerate(tokens, 1):
            running.append(token)
            self.forced_tokens += 1
            finish, _ = self._take(running, constrained, token, _certain(running, token))
            if finish is not None:
                break
            if constrained.output.pending:  # this token was too much: the others are drawn when it is parsed aside
                constrained.output.expect(tokens[num:])
                break
        self._rewritten.extend(running)
        return True, finish

    def _take(
        self, running: RunningRequest, constrained: Constrained, token: int, logprobs: Logprobs | None
    ) -> tuple[Finish | None, Jump | None]:
        """The newest token of the output goes to everybody."""
        constrained.unsent.append((token, logprobs))
        begun_s = time.perf_counter()
        try:
            jump = constrained.output.accept(token)
        except Exception as error:  # noqa: BLE001 - of a library, which raises anything
            return failed(running.request, error), None
        constrained.parse_s += time.perf_counter() - begun_s
        if constrained.output.ended:
            matched = token if token in constrained.output.eos_ids else None
            return Finish(FinishKind.STOP, matched=matched), None
        return (self._decide(running, token) if jump is None else None), jump  # one that is replaced decides nothing

    def _flush(self, running: RunningRequest, finish: Finish | None) -> None:
        """Send what no jump can replace any more."""
        constrained = _of(running)
        kept = 0 if finish is not None else constrained.output.window
        self.send_unsent(running.request, kept)

    def send_unsent(self, request: Request, kept: int = 0) -> None:
        """All but the last `kept` tokens."""
        unsent = request.own[Constrained].unsent
        num = max(len(unsent) - kept, 0)
        for token, logprobs in unsent[:num]:
            self._send(request.uid, token, logprobs)
        del unsent[:num]


def _of(running: RunningRequest) -> Constrained:
    return running.request.own[Constrained]


def _certain(running: RunningRequest, token: int) -> Logprobs | None:
    """What is returned of a token that was the only legal one: probability 1, after the mask, as if it was drawn."""
    if not running.request.flags & RowFlag.LOGPROBS:
        return None
    asked = logprob_row(0, running)
    others = (other for other in range(asked.num_top + 1) if other != token)
    top = np.array([token, *others][: asked.num_top], dtype=np.int32)
    values = np.full(asked.num_top, SMALLEST, dtype=np.float32)
    values[:1] = 0.0
    chosen = np.where(asked.ids == token, np.float32(0), SMALLEST).astype(np.float32)
    ids = np.array([token], dtype=np.int32)
    return Logprobs(running.uid, False, ids.tobytes(), bytes(4), top.tobytes(), values.tobytes(), chosen.tobytes())
