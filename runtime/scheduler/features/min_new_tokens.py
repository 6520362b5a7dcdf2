"""Outputs with a least length: until they have it, what would end them is not drawn."""

from dataclasses import replace

import numpy as np

from ramet.runtime.sampling.columns import SamplingColumns
from ramet.runtime.scheduler.drawing import DrawingRows, entries
from ramet.runtime.scheduler.rows import RowFlag, RunningRequest


def add_rows(columns: SamplingColumns, draws: DrawingRows) -> SamplingColumns:
    early = draws.num_output < draws.table.min_new[draws.rows]
    early &= (draws.flags & RowFlag.MASKED) != RowFlag.CONSTRAINED  # a grammar knows itself what may end its output
    banned = {i: _ending_ids(running, draws.eos_ids) for i, running in draws.where(early)}
    if not any(banned.values()):
        return columns
    ids = np.array([token for own in banned.values() for token in own], dtype=np.int32)
    return replace(columns, banned=entries(list(banned), [len(own) for own in banned.values()], ids))


def _ending_ids(running: RunningRequest, eos_ids: frozenset[int]) -> list[int]:
    """What would end it: not what only spells the end of its prompt."""
    params, healing = running.request.params, running.request.healing
    stops = {*params.stop_token_ids, *(() if params.ignore_eos else eos_ids)}
    return sorted(stops if healing is None else stops.difference(healing.spelling_ids))
