"""The rows of a step that will draw a token, as each feature looks at them to say how they sample. Q rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ramet.runtime.arrays import Ints
from ramet.runtime.sampling.columns import LogitEntries
from ramet.runtime.scheduler.rows import RowTable, RunningRequest


@dataclass(frozen=True, slots=True)
class DrawingRows:
    table: RowTable
    at: Callable[[int], RunningRequest]  # who runs in a row
    rows: Ints  # [Q] of the table
    flags: Ints  # [Q] of RowFlag
    num_output: Ints  # [Q] tokens of the output before this draw
    eos_ids: frozenset[int]

    def with_flag(self, flag: int) -> Iterator[tuple[int, RunningRequest]]:
        """(index into Q, request) of each row that has some bit of it."""
        return self.where((self.flags & flag) != 0)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Iterator[tuple[int, RunningRequest]]:
        """chosen [Q]"""
        return ((i, self.at(self.rows[i])) for i in np.flatnonzero(chosen).tolist())


def entries(rows: list[int], lengths: list[int], ids: Ints) -> LogitEntries:
    """rows[i] owns the next lengths[i] of the ids."""
    return LogitEntries(np.repeat(np.array(rows, np.int32), lengths), ids)
