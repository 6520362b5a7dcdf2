"""The modules of a decoder: linear layers, embeddings, root-mean-square norms, gated MLPs, self-attention.

Decides that a weight is there in one form: plain, or packed for the kernels of its device (`Packer`). Decides no
layout of the cache. The norm is alone or fused with the residual sum (Zhang and Sennrich 2019); its arithmetic is the
ops'.
T tokens, N in, M out, H query heads, G kv heads, D head size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from ramet.kernels.packers import PackedWeight, Packer
from ramet.kernels.reference import HeadNorms, RopeTables
from ramet.runtime.attention.base import AttentionBackend, ForwardInputs
from ramet.runtime.layers.activation import gated_activation
from ramet.runtime.layers.adapted import AdaptedLayer
from ramet.runtime.layers.ops import Ops
from ramet.runtime.layers.token_mixer import TokenMixer


class Linear(nn.Module):
    """x [T, N] -> [T, M]. `weight` [M, N] and `bias` [M] are not initialised. `pack` replaces the weight for good.

    `may_round`: its weight may be kept in fewer bits.
    """

    def __init__(self, num_in: int, num_out: int, *, bias: bool, dtype: torch.dtype, may_round: bool = True) -> None:
        super().__init__()
        self.may_round = may_round
        self.weight: nn.Parameter | None = nn.Parameter(torch.empty(num_out, num_in, dtype=dtype), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(num_out, dtype=dtype), requires_grad=False) if bias else None
        self.packed: PackedWeight | None = None
        self.is_read_whole = True
        self.adapted: AdaptedLayer | None = None  # None: no adapter was ever loaded

    def forward(self, x: Tensor) -> Tensor:
        if self.packed is not None:
            out = self.packed.linear(x, self.bias)
        else:
            assert self.weight is not None, "a layer has its weight in one form or the other"
            out = functional.linear(x, self.weight, self.bias)
        return out if self.adapted is None else self.adapted.add(x, out)

    def narrow(self, x: Tensor) -> Tensor:
        """x [T, N] -> [T, M], of the dtype of x; an embedding has the same for its tied head."""
        return self(x)

    def wide(self, x: Tensor) -> Tensor:
        """x [T, N] -> [T, M] float32, not rounded to the dtype of x where a kernel can leave that out."""
        if self.packed is None:
            return self(x).float()
        out = self.packed.linear(x, self.bias, wide=True)
        return out if self.adapted is None else self.adapted.add(x, out)

    def pack(self, packer: Packer) -> None:
        """Free the plain weight."""
        assert self.weight is not None, "a linear layer is packed once"
        self.take(packer(self.weight.data))

    def take(self, packed: PackedWeight) -> None:
        """In the place of the plain weight, which need not have been filled."""
        self.packed, self.weight = packed, None


class Embedding(nn.Module):
    """token_ids [T] int64 -> [T, N]; a tied output head reads the same weight. `weight` [V, N] is not initialised."""

    def __init__(
        self, vocab_size: int, hidden: int, *, scale: float = 1.0, tied: bool, dtype: torch.dtype, ops: Ops
    ) -> None:
        super().__init__()
        # In bfloat16 a Gemma of 3072 was trained with 55.5, not with sqrt(3072) = 55.4256.
        self._scale = torch.tensor(scale, dtype=dtype, device="cpu").item()
        self.weight: nn.Parameter | None = nn.Parameter(
            torch.empty(vocab_size, hidden, dtype=dtype), requires_grad=False
        )
        self.is_read_whole = tied  # by the head; else only rows of it are
        self.may_round = True
        self._ops = ops
        self.packed: PackedWeight | None = None
        self.adapted_rows: AdaptedLayer | None = None  # None: no adapter was ever loaded
        self.adapted: AdaptedLayer | None = None  # of a tied head, which an adapter changes without the embedding

    def forward(self, token_ids: Tensor) -> Tensor:
        if self.packed is not None:
            out = self.packed.rows(token_ids, self._scale)
        else:
            assert self.weight is not None, "an embedding has its weight in one form or the other"
            out = self._ops.gather(self.weight, token_ids, self._scale)
        return out if self.adapted_rows is None else self.adapted_rows.add_rows(token_ids, out, self._scale)

    def narrow(self, x: Tensor) -> Tensor:
        """The tied output head: x [Q, N] -> [Q, V]"""
        if self.packed is not None:
            out = self.packed.linear(x, None)
        else:
            assert self.weight is not None, "an embedding has its weight in one form or the other"
            out = functional.linear(x, self.weight)
        return out if self.adapted is None else self.adapted.add(x, out)

    def wide(self, x: Tensor) -> Tensor:
        """The tied output head in float32, not rounded where a kernel can leave that out."""
        if self.packed is None:
            return self.narrow(x).float()
        out = self.packed.linear(x, None, wide=True)
        return out if self.adapted is None else self.adapted.add(x, out)

    def pack(self, packer: Packer) -> None:
        """Free the plain weight."""
        assert self.weight is not None, "an embedding is packed once"
        self.take(packer(self.weight.data))

    def take(self, packed: PackedWeight) -> None:
        """In the place of the plain weight, which need not have been filled."""
        self.packed, self.weight = packed, None


def pack_linears(model: nn.Module, packer: Packer | None, exact: Packer | None) -> None:
    """Each that is plain, one layer after the other, so that at most one weight exists twice.

    `exact` packs those that may not be rounded. Without a packer they stay plain.
    """
    for module in model.modules():
        if isinstance(module, Linear | Embedding) and module.is_read_whole and module.weight is not None:
            chosen = packer if module.may_round else exact
            if chosen is not None:
                module.pack(chosen)


class RMSNorm(nn.Module):
    """x [T, N] -> [T, N]. `weight` [N] is not initialised. `wide`: it multiplies in float32, and is kept so.

    `plus_one`: a checkpoint has its distance from one (Gemma), of which `derive` makes the weight.
    """

    def __init__(
        self, hidden: int, eps: float, *, dtype: torch.dtype, ops: Ops, wide: bool = False, plus_one: bool = False
    ) -> None:
        super().__init__()
        kept = torch.float32 if wide else dtype
        self.weight = nn.Parameter(torch.empty(hidden, dtype=kept), requires_grad=False)
        self._eps, self._plus_one, self._ops = eps, plus_one, ops

    @property
    def neutral(self) -> float:
        """What a checkpoint has where the norm does not scale."""
        return 0.0 if self._plus_one else 1.0

    def derive(self) -> None:
        if self._plus_one:
            self.weight.data.add_(1)

    def forward(self, x: Tensor) -> Tensor:
        return self._ops.rms_norm(x, self.weight, self._eps)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """The norm of x + residual; residual [T, N] is WRITTEN with the sum."""
        return self._ops.add_rms_norm(x, residual, self.weight, self._eps)

    def with_keys(self, k_norm: "RMSNorm | None", values: bool) -> HeadNorms:
        """This norm of query heads and that of key heads, if there are any; they differ in their weights alone."""
        of_keys = self.weight if k_norm is None else k_norm.weight
        return HeadNorms(self.weight, of_keys, self._eps, values)


class GatedMLP(nn.Module):
    """x [T, N] -> [T, N]. `gate_up` packs both projections: rows are gate, then up."""

    def __init__(
        self, size: int, intermediate: int, *, activation: str, bias: bool, dtype: torch.dtype, ops: Ops
    ) -> None:
        super().__init__()
        self.gate_up = Linear(size, 2 * intermediate, bias=bias, dtype=dtype)
        self.down = Linear(intermediate, size, bias=bias, dtype=dtype)
        self._activation = gated_activation(activation, ops)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self._activation(self.gate_up(x)))


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """The projections of one layer's attention."""

    hidden: int
    heads: int
    kv_heads: int  # 0: it attends to the keys and values of another layer
    head_dim: int
    qkv_bias: bool
    o_bias: bool
    sinks: bool
    gated: bool  # H heads of gates, whose sigmoids multiply what attention returns
    v_norm: bool  # heads of values are normed, without a weight


class SelfAttention(TokenMixer[AttentionBackend]):
    """x [T, N] -> [T, N]. `qkv` packs the projections: rows are H heads of gates if there are some, then H query heads,
    then G key, then G value heads.
    """

    def __init__(
        self, layer: int, of: AttentionShape, qk_norms: tuple[RMSNorm, RMSNorm] | None, dtype: torch.dtype, ops: Ops
    ) -> None:
        super().__init__()
        self._gates = of.heads if of.gated else 0
        projected = (self._gates + of.heads + 2 * of.kv_heads) * of.head_dim
        self.qkv = Linear(of.hidden, projected, bias=of.qkv_bias, dtype=dtype)
        self.o = Linear(of.heads * of.head_dim, of.hidden, bias=of.o_bias, dtype=dtype)
        self.sinks = nn.Parameter(torch.empty(of.heads, dtype=torch.float32), requires_grad=False) if of.sinks else None
        self.q_norm = None if qk_norms is None else qk_norms[0]
        self.k_norm = None if qk_norms is None or not of.kv_heads else qk_norms[1]
        self._v_norm = of.v_norm and of.kv_heads > 0
        self._layer, self._ops = layer, ops
        self._heads, self._kv_heads, self._head_dim = of.heads, of.kv_heads, of.head_dim

    def store(self, x: Tensor, rope: RopeTables, attention: AttentionBackend, inputs: ForwardInputs) -> Tensor:
        projected = self.qkv(x)
        norms = None if self.q_norm is None else self.q_norm.with_keys(self.k_norm, self._v_norm)
        positions = inputs.positions if inputs.rope_positions is None else inputs.rope_positions
        keys, values = attention.cache(self._layer)
        if not self._kv_heads:  # those of another layer are there already
            keys, values = keys[:, :0], values[:, :0]
        qkv = self._heads_of(projected)
        self._ops.norm_rope_store(qkv, self._heads, rope, positions, norms, keys, values, inputs.slots)
        return projected

    def attend(self, held: Tensor, rope: RopeTables, attention: AttentionBackend, inputs: ForwardInputs) -> Tensor:
        qkv, k, v = self._heads_of(held), None, None
        if self._kv_heads:
            turning = self._heads + self._kv_heads
            k, v = qkv[:, self._heads : turning], qkv[:, turning:]
        out = attention.forward(qkv[:, : self._heads], k, v, self._layer, inputs, self.sinks)  # [T, H, D]
        read = out.view(-1, self._heads * self._head_dim)
        if self._gates:
            read = self._ops.sigmoid_mul(read, held[:, : read.shape[1]])
        return self.o(read)

    def _heads_of(self, projected: Tensor) -> Tensor:
        """Queries, keys and values: [T, H + 2 G, D]"""
        heads = projected.view(len(projected), -1, self._head_dim)
        return heads[:, self._gates :] if self._gates else heads
