"""Penalties of tokens that a row has drawn before: its slot of the runner's counts, and when they are counted anew."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ramet.runtime.cache.prefix import NO_SLOTS, RowAllocator
from ramet.runtime.engine.extras import Command
from ramet.runtime.sampling.columns import Penalties, PenaltyReset, SamplingColumns
from ramet.runtime.scheduler.drawing import DrawingRows
from ramet.runtime.scheduler.feature import RowFeature
from ramet.runtime.scheduler.rows import RowFlag, RowTable, RunningRequest


class PenaltySlots(RowFeature):
    flag = RowFlag.PENALTIES

    def __init__(self, slots: RowAllocator, table: RowTable, prompt_is_seen: bool) -> None:
        """`prompt_is_seen`: repetition penalties count the prompt's tokens as drawn."""
        self.slots, self._table, self._prompt_is_seen = slots, table, prompt_is_seen

    def begin(self, running: RunningRequest) -> Sequence[Command]:
        """Admission has seen that a slot is free."""
        self._table.penalty_slots[running.row] = self.slots.allocate()
        return self.changed(running)

    def changed(self, running: RunningRequest) -> Sequence[Command]:
        prompt = running.request.prompt if self._prompt_is_seen else NO_SLOTS
        return (PenaltyReset(int(self._table.penalty_slots[running.row]), running.output.copy(), prompt),)

    def free(self, row: int) -> None:
        if slot := int(self._table.penalty_slots[row]):  # 0: memory was short, and it never ran
            self.slots.free(slot)


def add_rows(columns: SamplingColumns, draws: DrawingRows) -> SamplingColumns:
    table, slots = draws.table, draws.table.penalty_slots[draws.rows]
    at = np.flatnonzero(slots).astype(np.int32)
    own = draws.rows[at]
    penalties = Penalties(at, slots[at], table.frequency[own], table.presence[own], table.repetition[own])
    return replace(columns, penalties=penalties)
