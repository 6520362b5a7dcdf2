"""From seats to the immutable Batch of one step. Decides the order of rows and what each must sample with.

Knows seats and their requests, not the tree and not the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ramet.runtime.arrays import Ints
from ramet.runtime.engine.batch import Batch, Fill
from ramet.runtime.sampling.columns import SamplingColumns
from ramet.runtime.scheduler.running import Seat

HOTTEST = 1e30  # every token is as likely as any other long before; beyond float32's largest a banned one is NaN


@dataclass(frozen=True, slots=True)
class Work:
    """One seat's share of a step: its next `num_new` known tokens."""

    seat: Seat
    num_new: int

    @property
    def draws(self) -> bool:
        """After this step every known token is computed and another one may follow."""
        return self.num_new == self.seat.uncomputed and self.seat.request.remaining > 0


@dataclass(frozen=True, slots=True)
class Step:
    """A planned step: works[i] is row i of the batch."""

    works: tuple[Work, ...]
    batch: Batch
    num_prefill_rows: int
    num_prefill_tokens: int


def build_step(works: Sequence[Work], fills: Sequence[Fill], eos_ids: frozenset[int]) -> Step:
    """Rows with one new token first, the longer ones after them, each group in the order given."""
    ordered = [w for w in works if w.num_new == 1] + [w for w in works if w.num_new > 1]
    num_decode = sum(w.num_new == 1 for w in works)
    draws = [i for i, work in enumerate(ordered) if work.draws]
    num_new = np.array([w.num_new for w in ordered], dtype=np.int32)
    starts = np.array([w.seat.computed for w in ordered], dtype=np.int32)
    batch = Batch(
        rows=np.array([w.seat.row for w in ordered], dtype=np.int32),
        num_new=num_new,
        seq_lens=starts + num_new,
        token_ids=_flatten([w.seat.request.tokens for w in ordered], ordered),
        positions=_positions(starts, num_new, num_decode),
        slots=_flatten([w.seat.slots for w in ordered], ordered),
        num_decode=num_decode,
        draws=np.array(draws, dtype=np.int32),
        sampling=_sampling([ordered[i].seat for i in draws], eos_ids),
        fills=tuple(fills),
    )
    prefill = [w.num_new for w in ordered if not w.seat.decoding]
    return Step(tuple(ordered), batch, len(prefill), sum(prefill))


def _flatten(sources: list[Ints], works: list[Work]) -> Ints:
    """The new part of every row's array, one after the other. [T]"""
    pieces = [source[w.seat.computed : w.seat.computed + w.num_new] for source, w in zip(sources, works, strict=True)]
    return np.concatenate(pieces)


def _positions(starts: Ints, num_new: Ints, num_decode: int) -> Ints:
    """Position in its own sequence of every new token. [T]"""
    if num_decode == len(starts):
        return starts
    first = np.cumsum(num_new) - num_new  # index of each row's first token among the T
    own = np.arange(int(num_new.sum()), dtype=np.int32)
    return (np.repeat(starts - first, num_new) + own).astype(np.int32)


def _sampling(seats: list[Seat], eos_ids: frozenset[int]) -> SamplingColumns:
    requests = [seat.request for seat in seats]
    params = [request.params for request in requests]
    banned = tuple(
        (i, _stop_ids(seat, eos_ids))
        for i, seat in enumerate(seats)
        if seat.request.num_output < seat.request.params.min_new_tokens
    )
    return SamplingColumns(
        temperature=np.array([0.0 if p.greedy else min(p.temperature, HOTTEST) for p in params], dtype=np.float32),
        top_k=np.array([max(p.top_k, 0) for p in params], dtype=np.int64),
        top_p=np.array([p.top_p for p in params], dtype=np.float32),
        min_p=np.array([p.min_p for p in params], dtype=np.float32),
        seeds=np.array([request.seed for request in requests], dtype=np.uint64),
        positions=np.array([request.num_output for request in requests], dtype=np.int64),
        banned=banned,
    )


def _stop_ids(seat: Seat, eos_ids: frozenset[int]) -> Ints:
    params = seat.request.params
    return np.array(sorted({*params.stop_token_ids, *(() if params.ignore_eos else eos_ids)}), dtype=np.int32)
