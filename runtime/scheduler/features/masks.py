"""The masks of rows under a constraint, which say what each step may draw. Made here or on a thread of their own.

Decides which rows of a step get theirs: when slow masks have spent the step's allowance, the other rows are held, and
their masks are made in later turns, in order (constraints.py). K rows that draw under a constraint, W words of a mask.
"""

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from ramet.runtime.arrays import Ints
from ramet.runtime.grammar.base import Grammar, MaskFiller, TooComplex
from ramet.runtime.scheduler.features.constrained import Constrained
from ramet.runtime.scheduler.features.constraints import failed
from ramet.runtime.scheduler.features.slow_rows import FREE_S, Allowance
from ramet.runtime.scheduler.features.tail_search import Healing
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.scheduler.step import Step

MAX_TOGETHER = 8  # masks of one call, of rows that were quick: it costs less than four calls, and is not interrupted
Asked = tuple[int, RunningRequest, Constrained]  # the row's index among the K


def make_masks(running: RunningSet, step: Step, vocab_size: int) -> Ints:
    """[K, W] int32, one mask for each of the step's masked rows. If its request has ended, a mask allows everything."""
    batch, table = step.batch, running.table
    assert batch.sampling.masked is not None
    at = batch.draws[batch.sampling.masked]
    rows = batch.rows[at]
    bits = np.full((len(rows), -(-vocab_size // 32)), -1, dtype=np.int32)
    alive = (table.uids[rows] == step.uids[at]) & (table.epochs[rows] == step.epochs[at])
    quick, slow = dict[MaskFiller, list[Asked]](), list[Asked]()
    for k in np.flatnonzero(alive).tolist():
        each = running.at(rows[k])
        constrained = each.request.own.get(Constrained)
        if constrained is None:
            fill_mask(each, bits[k])
        elif constrained.is_late or constrained.output.pending:
            constrained.undo = True
        elif constrained.ready is not None:
            bits[k], constrained.ready = constrained.ready, None
        elif each.request.flags & RowFlag.HEALING or (constrained.is_slow and constrained.output.aside is None):
            slow.append((k, each, constrained))
        else:
            quick.setdefault(constrained.output.backend, []).append((k, each, constrained))
    allowance = Allowance()
    for backend, group in quick.items():
        for begin in range(0, len(group), MAX_TOGETHER):
            some = group[begin : begin + MAX_TOGETHER]
            if allowance.is_spent:
                _put_off(some, bits)
            else:
                _fill_together(backend, some, bits, allowance)
    for asked in slow:
        if allowance.is_spent:
            _put_off([asked], bits)
        else:
            _fill_alone(*asked, bits, allowance)
    return bits


def _fill_together(backend: MaskFiller, group: Sequence[Asked], bits: Ints, allowance: Allowance) -> None:
    """Fill the masks in one call. If it fails, fill them one by one, so that only the output at fault fails."""
    begun_s, at, grammars = time.thread_time(), list[int](), list[Grammar]()
    for k, _, constrained in group:
        output = constrained.output
        if output.active and not output.grammar.must_end:
            at.append(k)
            grammars.append(output.grammar)
    try:
        if at:
            backend.fill_masks(grammars, at, bits)
    except Exception:  # noqa: BLE001 - filling one by one shows which output is at fault
        for k, each, constrained in group:
            _fill_alone(k, each, constrained, bits, allowance)
        return
    seconds = time.thread_time() - begun_s
    allowance.spend(seconds, len(group))
    is_slow = seconds > FREE_S * len(group)
    for k, each, constrained in group:
        constrained.is_slow = is_slow
        constrained.output.finish_mask(bits[k], each.num_output)


def _fill_alone(k: int, running: RunningRequest, constrained: Constrained, bits: Ints, allowance: Allowance) -> None:
    begun_s = time.thread_time()
    is_filled = fill_mask(running, bits[k])
    constrained.mask_s = time.thread_time() - begun_s
    constrained.undo = not is_filled and constrained.failure is None
    constrained.is_slow = constrained.mask_s > FREE_S
    allowance.spend(constrained.mask_s)


def _put_off(group: Sequence[Asked], bits: Ints) -> None:
    """What is drawn without a mask is taken back, and the row is held until a later turn has made its mask."""
    for k, _, constrained in group:
        constrained.undo, constrained.late_mask = True, np.empty_like(bits[k])


def fill_mask(running: RunningRequest, bits: Ints) -> bool:
    """WRITES bits [W] int32: what the row may draw next. False: its grammar has failed or needs more time than it has,
    and everything is allowed.
    """
    request, constrained = running.request, running.request.own.get(Constrained)
    bits[:] = -1
    try:
        output = None if constrained is None else constrained.output
        if output is not None and output.active and not output.grammar.must_end:
            output.grammar.fill_mask(bits)
        if (healing := request.own.get(Healing)) is not None:
            return healing.fill_mask(running.output, bits, output)
        if output is not None:
            output.finish_mask(bits, running.num_output)
        return True
    except Exception as error:  # noqa: BLE001 - a library raises anything, and its request ends with it
        assert constrained is not None, running.uid
        bits[:] = -1
        if not isinstance(error, TooComplex) or not _moves_aside(constrained, error):
            constrained.failure = failed(request, error)
        return False


def _moves_aside(constrained: Constrained, error: TooComplex) -> bool:
    """Parse the output aside, if it can be."""
    try:
        constrained.output.move_aside(error)
    except TooComplex:
        return False
    return True


class MaskThread:
    """Makes masks, here or on a thread of its own while the device computes the step that they are for."""

    def __init__(self, running: RunningSet, vocab_size: int) -> None:
        self._running, self._vocab_size = running, vocab_size
        self._thread: ThreadPoolExecutor | None = None  # started by the first constraint

    def make(self, step: Step) -> Ints:
        return make_masks(self._running, step, self._vocab_size)

    def begin(self, step: Step) -> "Future[Ints]":
        """The running set must not change until the future is done."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="masks")
        return self._thread.submit(self.make, step)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
