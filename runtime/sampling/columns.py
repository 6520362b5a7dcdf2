"""How the rows of a step sample, as plain host columns. Knows no torch and no request."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ramet.runtime.arrays import Ints


@dataclass(frozen=True, slots=True)
class SamplingColumns:
    """One value for each of the Q drawing rows in every column."""

    temperature: npt.NDArray[np.float32]  # [Q]; 0 is greedy
    top_k: npt.NDArray[np.int64]  # [Q]; 0 is off
    top_p: npt.NDArray[np.float32]  # [Q]; 1 is off
    min_p: npt.NDArray[np.float32]  # [Q]; 0 is off
    seeds: npt.NDArray[np.uint64]  # [Q]
    positions: npt.NDArray[np.int64]  # [Q] index of the token to draw in the row's own output
    banned: tuple[tuple[int, Ints], ...] = ()  # (index into Q, token ids that must not be drawn)

    @classmethod
    def greedy(cls, num: int) -> "SamplingColumns":
        """`num` rows that take their best token."""
        return cls(
            temperature=np.zeros(num, np.float32),
            top_k=np.zeros(num, np.int64),
            top_p=np.ones(num, np.float32),
            min_p=np.zeros(num, np.float32),
            seeds=np.zeros(num, np.uint64),
            positions=np.zeros(num, np.int64),
        )
