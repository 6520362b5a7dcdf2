"""Rows whose next token a grammar or the end of their prompt restricts: which ones, and what they may draw beside."""

from dataclasses import replace

import numpy as np

from ramet.runtime.sampling.columns import HealedRow, LogitEntries, SamplingColumns
from ramet.runtime.scheduler.drawing import DrawingRows
from ramet.runtime.scheduler.features.constrained import Constrained
from ramet.runtime.scheduler.features.tail_search import Healing
from ramet.runtime.scheduler.row_flag import RowFlag


def add_rows(columns: SamplingColumns, draws: DrawingRows) -> SamplingColumns:
    masked = np.flatnonzero(draws.flags & RowFlag.MASKED).astype(np.int32)
    return replace(columns, masked=masked, openings=_openings(draws))


def _openings(draws: DrawingRows) -> LogitEntries | None:
    """Where an output under a constraint may begin with a thought instead."""
    begins = (draws.num_output == 0) | ((draws.flags & RowFlag.HEALED) != 0)
    found = [
        (i, opening)
        for i, each in draws.where(begins & ((draws.flags & RowFlag.MASKED) == RowFlag.CONSTRAINED))
        if draws.num_output[i] == each.request.start.num_tokens
        if (opening := each.request.own[Constrained].output.opening) is not None
    ]
    return LogitEntries(*(np.array(column, dtype=np.int32) for column in zip(*found, strict=True))) if found else None


def add_healed(columns: SamplingColumns, draws: DrawingRows) -> SamplingColumns:
    """Rows that choose the end of their prompt again."""
    rows = list[HealedRow]()
    for i, each in draws.with_flag(RowFlag.HEALING):
        rows.append(HealedRow(i, each.request.own[Healing].inner_ids(each.output)))
    return replace(columns, healed=tuple(rows))
