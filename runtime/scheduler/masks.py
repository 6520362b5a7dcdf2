"""The masks of rows under a constraint, which say what each step may draw. Made here or on a thread of their own.

K rows that draw under a constraint, W words of a mask.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from ramet.runtime.arrays import Ints
from ramet.runtime.grammar.base import Grammar, Masks, TooComplex
from ramet.runtime.scheduler.batch import Step
from ramet.runtime.scheduler.constraints import failed
from ramet.runtime.scheduler.request import Constrained, Request, RunningRequest
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.scheduler.slow_rows import FREE_S


def make_masks(running: RunningSet, step: Step, vocab_size: int) -> Ints:
    """[K, W] int32, one mask for each of the step's masked rows. If its request has ended, a mask allows everything."""
    batch, table = step.batch, running.table
    assert batch.sampling.masked is not None
    at = batch.draws[batch.sampling.masked]
    rows = batch.rows[at]
    bits = np.full((len(rows), -(-vocab_size // 32)), -1, dtype=np.int32)
    alive = (table.uids[rows] == step.uids[at]) & (table.epochs[rows] == step.epochs[at])
    live = [(int(k), running.at(rows[k])) for k in np.flatnonzero(alive)]
    outputs = [(k, each.request.constrained, each.num_output) for k, each in live if each.request.constrained]
    by_backend: dict[Masks, list[tuple[int, Request]]] = {}
    for k, each in live:
        constrained = each.request.constrained
        if constrained and constrained.output.pending:
            constrained.undo = True
        elif constrained and constrained.output.active and not constrained.output.grammar.must_end:
            by_backend.setdefault(constrained.output.backend, []).append((k, each.request))
    for backend, group in by_backend.items():
        _fill(backend, group, bits)
    healing = {k: each for k, each in live if each.request.healing is not None}
    for k, constrained, num_output in outputs:
        if constrained.failure is None and not constrained.undo and k not in healing:
            constrained.output.finish_mask(bits[k], num_output)
    for k, each in healing.items():
        _fill_healing(each, bits[k])
    return bits


def _fill_healing(running: RunningRequest, bits: Ints) -> None:
    """WRITES bits [W] int32, the mask of the first token."""
    healing, constrained = running.request.healing, running.request.constrained
    assert healing is not None, running.uid
    if constrained is None:
        healing.fill_mask(running.output, bits, None)
    elif constrained.failure is None and not constrained.undo:
        try:
            constrained.undo = not healing.fill_mask(running.output, bits, constrained.output)
        except TooComplex as error:
            _move_aside(running.request, constrained, error)
        except Exception as error:  # noqa: BLE001 - as in `_fill`
            constrained.failure = failed(running.request, error)
            bits[:] = -1


def _fill(backend: Masks, group: list[tuple[int, Request]], bits: Ints) -> None:
    """Fill all masks in one call. If it fails, fill them one by one, so that only the output at fault fails."""
    grammars: list[Grammar] = [request.constrained.output.grammar for _, request in group if request.constrained]
    begun_s = time.thread_time()
    try:
        if not any(request.constrained.is_slow for _, request in group if request.constrained):
            backend.fill_masks(grammars, [k for k, _ in group], bits)
            if time.thread_time() - begun_s > SLOW_S:
                for _, request in group:
                    assert request.constrained is not None, request.uid
                    request.constrained.is_slow = True
            return
        _fill_each(group, bits)
    except Exception:  # noqa: BLE001 - filling one by one shows which output is at fault
        for k, request in group:
            constrained = request.constrained
            assert constrained is not None, request.uid
            try:
                constrained.output.grammar.fill_mask(bits[k])
            except TooComplex as error:
                bits[k] = -1
                _move_aside(request, constrained, error)
            except Exception as error:  # noqa: BLE001 - a library raises anything, and its request ends with it
                constrained.failure = failed(request, error)
                bits[k] = -1


def _fill_each(group: list[tuple[int, Request]], bits: Ints) -> None:
    """Fill and time each mask by itself, because the group has a slow one."""
    for k, request in group:
        constrained = request.constrained
        assert constrained is not None, request.uid
        begun_s = time.thread_time()
        constrained.output.grammar.fill_mask(bits[k])
        constrained.mask_s = time.thread_time() - begun_s
        constrained.is_slow = constrained.mask_s > FREE_S


def _move_aside(request: Request, constrained: Constrained, error: TooComplex) -> None:
    """Parse the output aside. The token that is drawn without a mask is taken back."""
    try:
        constrained.output.move_aside(error)
        constrained.undo = True
    except TooComplex:
        constrained.failure = failed(request, error)


SLOW_S = 0.005  # processor time of one call for many masks, beyond which each is timed by itself


class MaskThread:
    """Makes masks, here or on a thread of its own while the device computes the step that they are for."""

    def __init__(self, running: RunningSet, vocab_size: int) -> None:
        self._running, self._vocab_size = running, vocab_size
        self._thread: ThreadPoolExecutor | None = None  # started by the first constraint

    def make(self, step: Step) -> Ints:
        return make_masks(self._running, step, self._vocab_size)

    def fill(self, step: Step) -> "Future[Ints]":
        """The running set must not change until the future is done."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="masks")
        return self._thread.submit(self.make, step)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
