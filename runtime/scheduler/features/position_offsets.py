"""Rows whose tokens are at other positions to the model than their indices."""

import numpy as np

from ramet.runtime.engine.extras import PositionOffsets
from ramet.runtime.scheduler.feature import RowFeature
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RowTable, RunningRequest
from ramet.runtime.scheduler.step import StepBuilder


class Shifts:
    def __init__(self, num_rows: int) -> None:
        self.by_row = np.zeros(num_rows, np.int32)  # [M] a token's index less its position to the model


def shift_row(running: RunningRequest, shift: int) -> None:
    """From here on each of its tokens is at its index less `shift`."""
    table, row = running.table, running.row
    table.own(Shifts).by_row[row] = shift
    table.flags[row] &= ~RowFlag.SHIFTED
    if shift:
        table.flags[row] |= RowFlag.SHIFTED


class ShiftedRows(RowFeature):
    flag = RowFlag.SHIFTED

    def free(self, table: RowTable, row: int) -> None:
        table.own(Shifts).by_row[row] = 0


def plan(step: StepBuilder) -> None:
    step.inputs.append(PositionOffsets(step.table.own(Shifts).by_row[step.rows]))
