"""From running requests to the immutable Step. Decides the order of rows and which of them draw.

What a row asks beyond tokens is planned by the feature that has the bit (RowFlag), so that a request without penalties,
biases and bans costs nothing for them. R rows, Q rows that draw.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import numpy as np
import numpy.typing as npt

from ramet.runtime.arrays import Ints
from ramet.runtime.engine.batch import NO_ROWS
from ramet.runtime.sampling.columns import SamplingColumns
from ramet.runtime.scheduler.drawing import DrawingRows
from ramet.runtime.scheduler.features.planned import OF_DRAWS, OF_PROMPTS, OF_ROWS
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.scheduler.step import Prefill, Step, StepBuilder

ANY_OF_ROWS = reduce(or_, (flag for flag, _ in OF_ROWS))
ANY_OF_DRAWS = reduce(or_, (flag for flag, _ in OF_DRAWS))


def plan_step(
    number: int, running: RunningSet, decoding: Ints, prefills: Sequence[Prefill], eos_ids: frozenset[int]
) -> Step:
    """One token for each of the rows `decoding`, then the prefills; what is planned counts as scheduled from here on.

    Rows with one new token come first, the longer ones after them, each group in the order given.
    """
    table = running.table
    prefills = [p for p in prefills if p.num_new == 1] + [p for p in prefills if p.num_new > 1]
    rows = np.concatenate([decoding, np.array([p.running.row for p in prefills], dtype=np.int32)])
    num_new = np.ones(len(rows), dtype=np.int32)
    num_new[len(decoding) :] = [p.num_new for p in prefills]
    step = StepBuilder(number, table, running.at, rows, num_new, running.take_commands(), prefills)
    flags = int(np.bitwise_or.reduce(table.flags[rows]))
    for flag, plan in OF_PROMPTS:
        if flags & flag:
            plan(step)
    _plan_rows(step, running, flags)
    draws = np.flatnonzero((step.ends == table.planned_totals[rows]) & (step.ends < table.limits[rows])).astype(
        np.int32
    )
    prompts = [i for i, p in enumerate(prefills, len(decoding)) if p.running.scheduled < len(p.running.request.tokens)]
    indices = np.array(prompts, dtype=np.int32)  # beside them are outputs with tokens that nobody drew
    planned = step.build(draws, sampling_columns(running, rows[draws], eos_ids), indices)
    running.advance(number, rows, num_new, rows[draws])
    return planned


def _plan_rows(step: StepBuilder, running: RunningSet, flags: int) -> None:
    """`flags`: bits that some row of the step has."""
    if flags & ANY_OF_ROWS:
        for flag, plan in OF_ROWS:
            if flags & flag:
                plan(step)
    if running.memory.states is not None:
        running.memory.states.plan(step)


class DecodePlanner:
    """Plans steps that only decode, as `plan_step` does, and keeps from step to step what the same rows share."""

    def __init__(self, running: RunningSet, eos_ids: frozenset[int]) -> None:
        self._running, self._eos_ids = running, eos_ids
        self._kept = _Kept.of(running, NO_ROWS, eos_ids)

    def plan(self, number: int, decoding: Ints) -> Step:
        """`decoding` is the set's own array: the same one as long as the same rows decode."""
        running = self._running
        if decoding is not self._kept.rows:
            self._kept = _Kept.of(running, decoding, self._eos_ids)
        kept = self._kept
        step = StepBuilder(number, running.table, running.at, decoding, kept.ones, running.take_commands())
        if kept.flags & ANY_OF_ROWS or running.memory.states is not None:
            _plan_rows(step, running, kept.flags)
        planned = step.build(kept.indices, kept.sampling(running, step.ends, self._eos_ids))
        running.advance(number, decoding, kept.ones, decoding)
        return planned


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the steps of the same R decoding rows have in common. Arrays that steps share are never written."""

    rows: Ints  # [R]
    ones: Ints  # [R]
    indices: Ints  # [R]
    prompt_lens: npt.NDArray[np.int64]  # [R]
    flags: int  # those of any row
    columns: SamplingColumns  # as of the first of the steps

    @classmethod
    def of(cls, running: RunningSet, rows: Ints, eos_ids: frozenset[int]) -> "_Kept":
        table, num = running.table, len(rows)
        return cls(
            rows,
            np.ones(num, np.int32),
            np.arange(num, dtype=np.int32),
            table.prompt_lens[rows].astype(np.int64),
            int(np.bitwise_or.reduce(table.flags[rows])),
            sampling_columns(running, rows, eos_ids),
        )

    def sampling(self, running: RunningSet, ends: Ints, eos_ids: frozenset[int]) -> SamplingColumns:
        """How the rows sample in a step after which they have `ends` [R] tokens."""
        if self.flags & RowFlag.CHANGES or self.columns.openings is not None:
            return sampling_columns(running, self.rows, eos_ids)
        return replace(self.columns, positions=ends - self.prompt_lens)


def sampling_columns(running: RunningSet, rows: Ints, eos_ids: frozenset[int]) -> SamplingColumns:
    """One entry for each of `rows` [Q], which draw in this step. Every array is a copy."""
    table = running.table
    flags, num_output = table.flags[rows], table.planned_totals[rows] - table.prompt_lens[rows]
    draw_params = table.draw_params.map(lambda column: column[rows])
    columns = SamplingColumns(draw_params, num_output.astype(np.int64))
    asked = int(np.bitwise_or.reduce(flags))
    if asked & ANY_OF_DRAWS:
        draws = DrawingRows(table, running.at, rows, flags, num_output, eos_ids)
        for flag, add_rows in OF_DRAWS:
            if asked & flag:
                columns = add_rows(columns, draws)
    return columns
