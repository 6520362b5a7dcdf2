"""The random numbers of draws: Philox of a row's own seed and position, so that no draw depends on another row.

Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3". Q rows.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def uniforms(seeds: Tensor, positions: Tensor) -> Tensor:
    """`philox_uniforms` of tensors: seeds [Q] int64 (bits of a uint64), positions [Q] int64. [Q] float64"""
    numbers = philox_uniforms(seeds.cpu().numpy().view(np.uint64), positions.cpu().numpy())
    return torch.from_numpy(numbers).to(seeds.device)


def philox_uniforms(seeds: npt.NDArray[np.uint64], positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """One number in [0, 1) for every (seed, position), by Philox4x32-10 (Salmon et al. 2011). [Q]"""
    mask = np.uint64(0xFFFFFFFF)
    low, high = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
    counter = positions.astype(np.uint64)
    c0, c1 = counter & mask, counter >> np.uint64(32)
    c2, c3 = np.zeros_like(c0), np.zeros_like(c0)
    k0, k1 = seeds & mask, seeds >> np.uint64(32)
    for _ in range(10):
        p0, p1 = low * c0, high * c2
        c0, c1, c2, c3 = (p1 >> np.uint64(32)) ^ c1 ^ k0, p1 & mask, (p0 >> np.uint64(32)) ^ c3 ^ k1, p0 & mask
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & mask, (k1 + np.uint64(0xBB67AE85)) & mask
    return ((c0 << np.uint64(21)) | (c1 >> np.uint64(11))).astype(np.float64) * 2.0**-53
