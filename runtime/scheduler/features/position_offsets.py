"""Rows whose tokens are at other positions to the model than their indices."""

from ramet.runtime.engine.extras import PositionOffsets
from ramet.runtime.scheduler.step import StepBuilder


def plan(step: StepBuilder) -> None:
    step.inputs.append(PositionOffsets(step.table.shifts[step.rows]))
