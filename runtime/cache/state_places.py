"""Which place of the state pool is copied where, and when. Knows no tensor; state_pool.py says what a place is."""

from dataclasses import dataclass
from typing import NamedTuple

from ramet.runtime.arrays import Ints


class StateCopy(NamedTuple):
    """Before a step computes anything, the state at `source` is copied to `target`; several go in their order."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class StateSaves:
    """Inside a step: after `at[r, i]` new tokens of its row r the row's state is copied to place `to[r, i]`."""

    at: Ints  # [R, n]; 0: it is not
    to: Ints  # [R, n]
