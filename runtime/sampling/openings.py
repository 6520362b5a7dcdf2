"""Outputs that may begin with a thought instead of what their grammar allows: where the model would open one.

Their first token is drawn twice from the same logits: freely, and unless that opens a thought, under the mask. The free
draw has a random number of its own; otherwise the second one could only get numbers at which the first opens nothing.
B rows that may open a thought, V vocabulary, W words of a mask.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ramet.runtime.arrays import Ints
from ramet.runtime.sampling.columns import LogitEntries, SamplingColumns

FREE_POSITION = -1  # of the random number: no token of an output has it

Draw = Callable[[Tensor, SamplingColumns], tuple[Tensor, Tensor]]  # logits and the columns of their rows -> tokens


class Openings:
    """What the rows of `spots` draw freely. logits [Q, V] float32: all but the masks is in them."""

    def __init__(self, logits: Tensor, columns: SamplingColumns, spots: LogitEntries, draw: Draw) -> None:
        at = torch.from_numpy(spots.rows).to(logits.device).long()
        self._rows, self._logits = at, logits[at]  # a copy
        drawn, _ = draw(self._logits, alone(columns, spots.rows))
        self._opened = drawn == torch.from_numpy(spots.ids).to(logits.device)  # [B]
        self._spots = spots

    def let_through(self, masked: Tensor, allowed: Tensor) -> None:
        """WRITES allowed [K, W] int32, the masks of rows masked [K] int32: who opens a thought draws nothing else."""
        ids, num_words = self._spots.ids, allowed.shape[1]
        known = np.flatnonzero(ids < 32 * num_words)  # a tokenizer may have a token that the model has no logit for
        bits = np.zeros((len(ids), num_words), np.uint32)
        bits[known, ids[known] >> 5] = np.uint32(1) << (ids[known] & 31).astype(np.uint32)
        at = torch.searchsorted(masked, self._rows.int())
        opening = torch.from_numpy(bits.view(np.int32)).to(allowed.device)
        allowed[at] = torch.where(self._opened[:, None], opening, allowed[at])

    def show(self, logits: Tensor) -> None:
        """WRITES logits [Q, V], from which log-probabilities are returned: no mask holds where a thought was opened."""
        logits[self._rows] = torch.where(self._opened[:, None], self._logits, logits[self._rows])


def alone(columns: SamplingColumns, rows: Ints) -> SamplingColumns:
    """How these rows draw freely."""
    params = columns.draw_params.map(lambda column: column[rows])
    filters = tuple(each.among(rows) for each in columns.filters)
    return SamplingColumns(params, np.full(len(rows), FREE_POSITION, np.int64), filters=filters)
