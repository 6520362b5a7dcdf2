"""Attention to latents on a GPU by our Triton kernels. Every row meets latents, whether it decodes or extends.

Rows of a step are planned as those of triton.py, so the same graphs replay them. T new tokens, H heads, L numbers of a
latent, P of a rotated key, C of the rest of a query, V of a value.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ramet.kernels.latent_attention import decode_latents, extend_latents, latent_scratch, tokens_of_latent_tile
from ramet.kernels.tuned import latent_extend_tuning, processor_of
from ramet.runtime.attention.base import ForwardInputs, LayerAttention
from ramet.runtime.attention.latent import LatentBackend, LatentSizes
from ramet.runtime.attention.triton import TritonRows
from ramet.runtime.cache.pool import KVPool

MAX_LATENT, MAX_ROTATED = 512, 64  # numbers: larger tiles fit no multiprocessor


class LatentTritonAttention(LatentBackend):
    name = "triton"

    def __init__(
        self, pool: KVPool, heads: int, layers: Sequence[LayerAttention], sizes: LatentSizes, max_rows: int
    ) -> None:
        """`max_rows` may decode in one step."""
        super().__init__(pool, layers, sizes)
        device = pool.keys[0].device
        tuning = latent_extend_tuning(pool.dtype.itemsize, processor_of(device))
        scratch = latent_scratch(max_rows, heads, sizes.latent, pool.dtype, device)
        self.rows = TritonRows(scratch, tokens_of_latent_tile(heads, tuning))

    def plan(self, inputs: ForwardInputs) -> None:
        self.rows.plan(inputs)

    def meet(self, absorbed: Tensor, turned: Tensor, layer: int, inputs: ForwardInputs) -> Tensor:
        keys, scale, num = self.pool.keys[layer], self.layers[layer].scale, inputs.num_decode
        # tokens that a graph has beside those of its step are not attended for, but what is made of them is kept in the
        # padding's slot, where the padding row reads it back
        make = torch.empty if inputs.extends is None else torch.zeros
        out = make(absorbed.shape, dtype=absorbed.dtype, device=absorbed.device)
        if self.rows.decoding is not None:
            decode_latents(absorbed[:num], turned[:num], keys, inputs.table, out[:num], self.rows.scratch, scale)
        if self.rows.extends is not None:
            extend_latents(absorbed, turned, keys, inputs.table, self.rows.extends, out, scale)
        return out


def fits(sizes: LatentSizes) -> bool:
    """What the kernels can read."""
    return sizes.latent <= MAX_LATENT and sizes.rotated <= MAX_ROTATED
