"""Penalties of tokens that a row has drawn before: its slot of the runner's counts, and when they are counted anew."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ramet.runtime.cache.prefix import NO_SLOTS, RowAllocator
from ramet.runtime.engine.extras import Command
from ramet.runtime.sampling.columns import MIN_REPETITION, Penalties, PenaltyReset, SamplingColumns
from ramet.runtime.scheduler.drawing import DrawingRows
from ramet.runtime.scheduler.feature import RowFeature
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RowTable, RunningRequest


class PenaltyColumns:
    """[M] of rows with penalties."""

    def __init__(self, num_rows: int) -> None:
        self.slots = np.zeros(num_rows, np.int32)  # 0: none
        self.frequency, self.presence = np.zeros(num_rows, np.float32), np.zeros(num_rows, np.float32)
        self.repetition = np.ones(num_rows, np.float32)


class PenaltySlots(RowFeature):
    flag = RowFlag.PENALTIES

    def __init__(self, slots: RowAllocator, table: RowTable, prompt_is_seen: bool) -> None:
        """`prompt_is_seen`: repetition penalties count the prompt's tokens as drawn."""
        self.slots, self.columns, self._prompt_is_seen = slots, table.own(PenaltyColumns), prompt_is_seen

    def begin(self, running: RunningRequest) -> Sequence[Command]:
        """Admission has seen that a slot is free."""
        columns, row, params = self.columns, running.row, running.request.params
        columns.slots[row] = self.slots.allocate()
        columns.frequency[row], columns.presence[row] = params.frequency_penalty, params.presence_penalty
        columns.repetition[row] = max(params.repetition_penalty, MIN_REPETITION)
        return self.changed(running)

    def changed(self, running: RunningRequest) -> Sequence[Command]:
        prompt = running.request.prompt if self._prompt_is_seen else NO_SLOTS
        return (PenaltyReset(int(self.columns.slots[running.row]), running.output.copy(), prompt),)

    def free(self, table: RowTable, row: int) -> None:
        if slot := int(self.columns.slots[row]):  # 0: memory was short, and it never ran
            self.slots.free(slot)
            self.columns.slots[row] = 0


def add_rows(columns: SamplingColumns, draws: DrawingRows) -> SamplingColumns:
    of_rows = draws.table.own(PenaltyColumns)
    slots = of_rows.slots[draws.rows]
    at = np.flatnonzero(slots).astype(np.int32)
    own = draws.rows[at]
    penalties = Penalties(at, slots[at], of_rows.frequency[own], of_rows.presence[own], of_rows.repetition[own])
    return replace(columns, penalties=penalties)
