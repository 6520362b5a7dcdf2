"""Outputs with a least length: until they have it, what would end them is not drawn."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ramet.runtime.engine.extras import Command
from ramet.runtime.sampling.columns import SamplingColumns
from ramet.runtime.scheduler.drawing import DrawingRows, entries
from ramet.runtime.scheduler.feature import RowFeature
from ramet.runtime.scheduler.features.tail_search import Healing
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest


class LeastLengths:
    def __init__(self, num_rows: int) -> None:
        self.by_row = np.zeros(num_rows, np.int32)  # [M] of outputs that have one


class LongOutputs(RowFeature):
    flag = RowFlag.MIN_NEW

    def begin(self, running: RunningRequest) -> Sequence[Command]:
        running.table.own(LeastLengths).by_row[running.row] = running.request.params.min_new_tokens
        return ()


def add_rows(columns: SamplingColumns, draws: DrawingRows) -> SamplingColumns:
    early = draws.num_output < draws.table.own(LeastLengths).by_row[draws.rows]
    early &= (draws.flags & RowFlag.MIN_NEW) != 0
    early &= (draws.flags & RowFlag.MASKED) != RowFlag.CONSTRAINED  # a grammar knows itself what may end its output
    banned = {i: _ending_ids(running, draws.eos_ids) for i, running in draws.where(early)}
    if not any(banned.values()):
        return columns
    ids = np.array([token for own in banned.values() for token in own], dtype=np.int32)
    return replace(columns, banned=entries(list(banned), [len(own) for own in banned.values()], ids))


def _ending_ids(running: RunningRequest, eos_ids: frozenset[int]) -> list[int]:
    """What would end it: not what only spells the end of its prompt."""
    params, healing = running.request.params, running.request.own.get(Healing)
    stops = {*params.stop_token_ids, *(() if params.ignore_eos else eos_ids)}
    return sorted(stops if healing is None else stops.difference(healing.spelling_ids))
