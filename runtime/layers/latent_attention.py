"""Multi-head latent attention (DeepSeek-V2, 2024): of a token one latent and one rotated key are cached, for all heads.

Decides which projections there are and in which of two forms they are used. The keys and values of heads are products
of the latent with `kv_b`; a query may as well be multiplied by the part for keys, meet latents, and what it attends to
be multiplied by the part for values. `absorb` makes the weights of that form. Which form a row takes is the backend's.
T new tokens, N in, H heads, L numbers of a latent, P of a rotated key, C of the rest of a query, V of a value.
"""

from typing import cast

import torch
from torch import Tensor, nn

from ramet.kernels.reference import RopeTables
from ramet.kernels.reference_experts import Projections
from ramet.runtime.attention.base import ForwardInputs
from ramet.runtime.attention.latent import LatentBackend, LatentSizes
from ramet.runtime.layers.experts import ExpertLinears
from ramet.runtime.layers.modules import Linear, RMSNorm
from ramet.runtime.layers.ops import Ops
from ramet.runtime.layers.token_mixer import TokenMixer

NORM_EPS = 1e-6  # whatever a config says of the other norms


class LatentSelfAttention(TokenMixer[LatentBackend]):
    """x [T, N] -> [T, N]. Of the checkpoint are all but `to_latents` and `from_latents`, which `absorb` fills."""

    def __init__(
        self, layer: int, *, size: int, heads: int, sizes: LatentSizes, bias: bool, dtype: torch.dtype, ops: Ops
    ) -> None:
        super().__init__()

        def norm(size: int) -> RMSNorm:
            return RMSNorm(size, NORM_EPS, dtype=dtype, ops=ops)

        query_size, rank = heads * sizes.query, sizes.query_latent
        self.q_a = None if rank is None else Linear(size, rank, bias=bias, dtype=dtype)
        self.q_norm = None if rank is None else norm(rank)
        self.q_b = Linear(rank or size, query_size, bias=False, dtype=dtype)
        self.kv_a = Linear(size, sizes.key, bias=bias, dtype=dtype)
        self.kv_norm = norm(sizes.latent)
        # not rounded: the two forms would be rounded differently
        self.kv_b = Linear(sizes.latent, heads * sizes.expanded, bias=False, dtype=dtype, may_round=False)
        self.o = Linear(heads * sizes.value, size, bias=bias, dtype=dtype)
        self.to_latents = ExpertLinears(heads, sizes.content, sizes.latent, dtype, may_round=False)
        self.from_latents = ExpertLinears(heads, sizes.latent, sizes.value, dtype, may_round=False)
        self._layer, self._heads, self._sizes, self._ops = layer, heads, sizes, ops

    def absorb(self) -> None:
        """Fill what is made of kv_b, which is plain from then on: inputs of fewer bits would be rounded in one form."""
        sizes, source = self._sizes, self.kv_b
        if source.packed is not None:
            source.weight = nn.Parameter(source.packed.unpacked(), requires_grad=False)
            source.packed = None
        assert source.weight is not None, "a layer has its weight in one form or the other"
        of_heads = source.weight.unflatten(0, (self._heads, sizes.expanded))  # [H, C + V, L]
        for head, to, back in zip(of_heads, self.to_latents, self.from_latents, strict=True):
            assert to.weight is not None and back.weight is not None, "heads are packed after this"
            to.weight.copy_(head[: sizes.content].T)
            back.weight.copy_(head[sizes.content :])

    def store(self, x: Tensor, rope: RopeTables, attention: LatentBackend, inputs: ForwardInputs) -> Tensor:
        """Queries are made of x itself, in the second stage."""
        sizes, ops = self._sizes, self._ops
        down = self.kv_a(x)  # [T, L + P]
        latents, turned = self.kv_norm(down[:, : sizes.latent]), down[:, None, sizes.latent :]
        ops.rotate(turned, *rope, _positions(inputs))
        ops.store_latents(latents, turned, attention.cache(self._layer)[0], inputs.slots)
        return x

    def attend(self, held: Tensor, rope: RopeTables, attention: LatentBackend, inputs: ForwardInputs) -> Tensor:
        sizes = self._sizes
        q = self._queries(held).view(len(held), self._heads, sizes.query)  # [T, H, C + P]
        self._ops.rotate(q[..., sizes.content :], *rope, _positions(inputs))
        out = attention.attend(q, self, self._layer, inputs)  # [T, H, V]
        return self.o(out.flatten(1))  # a product for each head may leave heads before tokens in memory

    def _queries(self, x: Tensor) -> Tensor:
        if self.q_a is None or self.q_norm is None:
            return self.q_b(x)
        return self.q_b(self.q_norm(self.q_a(x)))

    def absorbed(self, q: Tensor) -> Tensor:
        """q [T, H, C] -> what meets latents [T, H, L]"""
        return self._ops.of_heads(cast(Projections, self.to_latents), q)

    def values(self, x: Tensor) -> Tensor:
        """What was attended to, of latents [T, H, L] -> of heads [T, H, V]"""
        return self._ops.of_heads(cast(Projections, self.from_latents), x)

    def expanded(self, latents: Tensor) -> Tensor:
        """[n, L] -> keys and values of heads [n, H, C + V]"""
        return self.kv_b(latents).view(len(latents), self._heads, self._sizes.expanded)


def _positions(inputs: ForwardInputs) -> Tensor:
    return inputs.positions if inputs.rope_positions is None else inputs.rope_positions
