"""Numbers that a request adds to logits of its own choice."""

from dataclasses import replace

import numpy as np

from ramet.runtime.sampling.columns import SamplingColumns
from ramet.runtime.scheduler.drawing import DrawingRows, entries
from ramet.runtime.scheduler.rows import RowFlag


def add_rows(columns: SamplingColumns, draws: DrawingRows) -> SamplingColumns:
    given = {i: each.request.biases for i, each in draws.with_flag(RowFlag.BIAS) if each.request.biases is not None}
    ids, values = (np.concatenate(column) for column in zip(*given.values(), strict=True))
    return replace(columns, biased=entries(list(given), [len(own) for own, _ in given.values()], ids), biases=values)
