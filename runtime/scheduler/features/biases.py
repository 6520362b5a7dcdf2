"""Numbers that a request adds to logits of its own choice."""

from dataclasses import dataclass, replace

import numpy as np

from ramet.ipc.params import SamplingParams
from ramet.runtime.arrays import Floats, Ints
from ramet.runtime.sampling.columns import SamplingColumns
from ramet.runtime.scheduler.drawing import DrawingRows, entries
from ramet.runtime.scheduler.request import FeatureState
from ramet.runtime.scheduler.row_flag import RowFlag


@dataclass(frozen=True, slots=True)
class LogitBias(FeatureState):
    """Made once, when a request arrives: thousands of numbers would cost milliseconds in every step."""

    ids: Ints  # [n] tokens
    values: Floats  # [n] what is added to the logit of each

    @classmethod
    def of(cls, params: SamplingParams) -> "LogitBias":
        ids, values = zip(*params.logit_bias, strict=True)
        return cls(np.array(ids, dtype=np.int32), np.array(values, dtype=np.float32))


def add_rows(columns: SamplingColumns, draws: DrawingRows) -> SamplingColumns:
    given = {i: each.request.own[LogitBias] for i, each in draws.with_flag(RowFlag.BIAS)}
    ids, values = [own.ids for own in given.values()], [own.values for own in given.values()]
    biased = entries(list(given), list(map(len, ids)), np.concatenate(ids))
    return replace(columns, biased=biased, biases=np.concatenate(values))
