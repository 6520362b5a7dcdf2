"""Root-mean-square norm, alone or fused with the residual sum (Zhang and Sennrich 2019). The arithmetic is the ops'."""

import torch
from torch import Tensor, nn

from ramet.runtime.layers.ops import Ops


class RMSNorm(nn.Module):
    """x [T, N] -> [T, N]. `weight` [N] is not initialised. `plus_one`: stored as its distance from one (Gemma)."""

    def __init__(self, hidden: int, eps: float, *, plus_one: bool, dtype: torch.dtype, ops: Ops) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden, dtype=dtype), requires_grad=False)
        self._eps, self._plus_one, self._ops = eps, plus_one, ops

    @property
    def neutral(self) -> float:
        """The weight at which the norm does not scale."""
        return 0.0 if self._plus_one else 1.0

    def forward(self, x: Tensor) -> Tensor:
        return self._ops.rms_norm(x, self.weight, self._eps, self._plus_one)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """The norm of x + residual; residual [T, N] is WRITTEN with the sum."""
        return self._ops.add_rms_norm(x, residual, self.weight, self._eps, self._plus_one)

    def heads(self, x: Tensor) -> None:
        """Norm each head by itself. WRITES x [T, heads, N], whose rows may be strided."""
        self._ops.norm_heads(x, self.weight, self._eps, self._plus_one)
