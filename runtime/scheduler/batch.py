"""From the running requests that planning.py has chosen to the immutable Step: in which order, and which draw.

What a row asks beyond tokens is planned by the feature that has the bit (RowFlag), so that a request that asks for
nothing costs nothing. R rows, Q rows that draw.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import itemgetter, or_

import numpy as np

from ramet.runtime.arrays import Ints
from ramet.runtime.engine.batch import NO_ROWS
from ramet.runtime.sampling.columns import SamplingColumns
from ramet.runtime.scheduler.drawing import DrawingRows
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.scheduler.step import Step, StepBuilder

Plan = Callable[[StepBuilder], None]
AddRows = Callable[[SamplingColumns, DrawingRows], SamplingColumns]


@dataclass(frozen=True, slots=True)
class PlannedByBit:
    """What is added to a step of which some row has the bit, in this order."""

    of_prompts: Sequence[tuple[int, Plan]]  # in steps with prefills
    of_rows: Sequence[tuple[int, Plan]]  # in every step
    of_draws: Sequence[tuple[int, AddRows]]


class BatchPlanner:
    """Plans steps, and keeps what steps that only decode the same R rows have in common.

    Arrays that steps share are never written.
    """

    def __init__(self, running: RunningSet, eos_ids: frozenset[int], planned: PlannedByBit) -> None:
        self._running, self._eos_ids, self._planned = running, eos_ids, planned
        self._bits_of_rows = reduce(or_, (flag for flag, _ in planned.of_rows))
        self._bits_of_draws = reduce(or_, (flag for flag, _ in planned.of_draws))
        self._keep(NO_ROWS)

    def plan(self, number: int, decoding: Ints, prefills: Mapping[int, int]) -> Step:
        """One token for each of the rows `decoding`, then `prefills`: how many known tokens of which rows are computed.
        What is planned counts as scheduled from here.

        Rows with one new token come first, the longer ones after them, in the order given.
        """
        running, table = self._running, self._running.table
        num_new = np.ones(len(decoding) + len(prefills), dtype=np.int32)
        num_new[len(decoding) :] = list(prefills.values())
        order = np.argsort(num_new > 1, kind="stable")
        rows, num_new = np.concatenate([decoding, np.array(list(prefills), dtype=np.int32)])[order], num_new[order]
        step = StepBuilder(number, table, running.at, rows, num_new, len(prefills), running.memory.take_commands())
        flags = int(np.bitwise_or.reduce(table.flags[rows]))
        for flag, plan in (*self._planned.of_prompts, *self._planned.of_rows):
            if flags & flag:
                plan(step)
        draws = np.flatnonzero((step.ends == table.planned_totals[rows]) & (step.ends < table.limits[rows])).astype(
            np.int32
        )
        prompts = []  # beside them are outputs with tokens that nobody drew
        for index in range(len(decoding), len(rows)):
            if step.starts[index] < len(running.at(rows[index]).request.tokens):
                prompts.append(index)
        planned = step.build(draws, self._sampling(rows[draws]), np.array(prompts, dtype=np.int32))
        running.advance(number, rows, num_new, rows[draws])
        return planned

    def plan_decode(self, number: int, decoding: Ints) -> Step:
        """As `plan` without prefills. `decoding` is the set's own array: the same one as long as its rows decode."""
        running = self._running
        if decoding is not self._rows:
            self._keep(decoding)
        step = StepBuilder(number, running.table, running.at, decoding, self._ones, 0, running.memory.take_commands())
        if self._flags & self._bits_of_rows:
            for flag, plan in self._planned.of_rows:
                if self._flags & flag:
                    plan(step)
        if self._flags & RowFlag.CHANGES or self._columns.openings is not None:
            columns = self._sampling(decoding)
        else:
            columns = replace(self._columns, positions=step.ends - self._prompt_lens)
        planned = step.build(self._indices, columns)
        running.advance(number, decoding, self._ones, decoding)
        return planned

    def _keep(self, rows: Ints) -> None:
        table, num = self._running.table, len(rows)
        self._rows, self._ones, self._indices = rows, np.ones(num, np.int32), np.arange(num, dtype=np.int32)
        self._prompt_lens = table.prompt_lens[rows].astype(np.int64)
        self._flags = int(np.bitwise_or.reduce(table.flags[rows]))
        self._columns = self._sampling(rows)  # as of the first of the steps

    def _sampling(self, rows: Ints) -> SamplingColumns:
        """One entry for each of `rows` [Q], which draw in this step. Every array is a copy."""
        table = self._running.table
        flags, num_output = table.flags[rows], table.planned_totals[rows] - table.prompt_lens[rows]
        draw_params = table.draw_params.map(itemgetter(rows))
        columns = SamplingColumns(draw_params, num_output.astype(np.int64))
        asked = int(np.bitwise_or.reduce(flags))
        if asked & self._bits_of_draws:
            draws = DrawingRows(table, self._running.at, rows, flags, num_output, self._eos_ids)
            for flag, add_rows in self._planned.of_draws:
                if asked & flag:
                    columns = add_rows(columns, draws)
        return columns
