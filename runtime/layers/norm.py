"""Root-mean-square norm, alone or fused with the residual sum (Zhang and Sennrich 2019). The arithmetic is the ops'."""

import torch
from torch import Tensor, nn

from ramet.runtime.layers.ops import Ops


class RMSNorm(nn.Module):
    """x [T, N] -> [T, N]. `weight` [N] is not initialised."""

    def __init__(self, hidden: int, eps: float, *, dtype: torch.dtype, ops: Ops) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden, dtype=dtype), requires_grad=False)
        self._eps, self._ops = eps, ops

    def forward(self, x: Tensor) -> Tensor:
        return self._ops.rms_norm(x, self.weight, self._eps)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """The norm of x + residual; residual [T, N] is WRITTEN with the sum."""
        return self._ops.add_rms_norm(x, residual, self.weight, self._eps)
