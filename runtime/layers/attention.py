"""Self-attention of one layer: project, norm, rotate, hand to the backend, project back. Decides no memory layout.

T new tokens, H query heads, G kv heads, D head size.
"""

import torch
from torch import Tensor, nn

from ramet.runtime.attention.base import AttentionBackend, ForwardInputs
from ramet.runtime.layers.linear import Linear
from ramet.runtime.layers.norm import RMSNorm
from ramet.runtime.layers.ops import Ops


class SelfAttention(nn.Module):
    """x [T, N] -> [T, N]. `qkv` packs the three projections: rows are H query heads, then G key, then G value heads."""

    def __init__(
        self,
        layer: int,
        *,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        qkv_bias: bool,
        o_bias: bool,
        qk_norms: tuple[RMSNorm, RMSNorm] | None,
        dtype: torch.dtype,
        ops: Ops,
    ) -> None:
        super().__init__()
        self.qkv = Linear(hidden, (heads + 2 * kv_heads) * head_dim, bias=qkv_bias, dtype=dtype)
        self.o = Linear(heads * head_dim, hidden, bias=o_bias, dtype=dtype)
        self.q_norm = None if qk_norms is None else qk_norms[0]
        self.k_norm = None if qk_norms is None else qk_norms[1]
        self._layer, self._ops = layer, ops
        self._heads, self._kv_heads, self._head_dim = heads, kv_heads, head_dim

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor], attention: AttentionBackend, inputs: ForwardInputs
    ) -> Tensor:
        qkv = self.qkv(x).view(-1, self._heads + 2 * self._kv_heads, self._head_dim)  # [T, H + 2 G, D]
        turning = self._heads + self._kv_heads
        if self.q_norm is not None and self.k_norm is not None:
            self.q_norm.heads(qkv[:, : self._heads])
            self.k_norm.heads(qkv[:, self._heads : turning])
        self._ops.rotate(qkv[:, :turning], *rope, inputs.positions)
        q, k, v = qkv[:, : self._heads], qkv[:, self._heads : turning], qkv[:, turning:]
        out = attention.forward(q, k, v, self._layer, inputs)  # [T, H, D]
        return self.o(out.view(-1, self._heads * self._head_dim))
