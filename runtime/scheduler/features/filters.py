"""Filters, which leave tokens out of some rows (runtime/sampling/filters.py)."""

from dataclasses import replace

import numpy as np

from ramet.runtime.sampling.columns import FilterRows, SamplingColumns
from ramet.runtime.scheduler.drawing import DrawingRows
from ramet.runtime.scheduler.row_flag import RowFlag


def add_rows(columns: SamplingColumns, draws: DrawingRows) -> SamplingColumns:
    asked: dict[str, dict[int, float]] = {}
    for i, running in draws.with_flag(RowFlag.FILTERED):
        for name, value in running.request.params.filters.items():
            asked.setdefault(name, {})[i] = value
    made = (
        FilterRows(n, np.array(list(of), np.int32), np.array(list(of.values()), np.float32)) for n, of in asked.items()
    )
    return replace(columns, filters=tuple(made))
