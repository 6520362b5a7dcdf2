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
