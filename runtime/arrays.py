"""The array types that cross module borders. Knows nothing else."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]  # token ids, positions, slots, pages, rows
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
