"""Attention in plain torch on any device: the oracle of the others and the way where no kernel is at hand.

Knows the pool, and of the model what each layer does with its scores. Gathers every row's keys and values, row by row.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ramet.kernels import reference as kernels
from ramet.runtime.attention.base import ForwardInputs, LayerAttention
from ramet.runtime.cache.pool import KVPool


class ReferenceAttention:
    name = "reference"

    def __init__(self, pool: KVPool, layers: Sequence[LayerAttention]) -> None:
        self.pool = pool
        self._layers = layers

    def plan(self, inputs: ForwardInputs) -> None:
        self._table = inputs.table[inputs.rows.tolist()]  # [R, L]
        self._num_new, self._seq_lens = inputs.num_new.tolist(), inputs.seq_lens.tolist()

    def cache(self, layer: int) -> tuple[Tensor, Tensor]:
        return self.pool.of(self._layers[layer].source(layer))

    def forward(
        self,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        layer: int,
        inputs: ForwardInputs,
        sinks: Tensor | None = None,
    ) -> Tensor:
        rule, (keys, values) = self._layers[layer], self.cache(layer)
        key_ends = None if inputs.key_ends is None else torch.from_numpy(inputs.key_ends).to(q.device)
        asked = rule.scale, rule.window, rule.softcap, sinks, key_ends
        return kernels.extend_attention(q, keys, values, self._table, self._num_new, self._seq_lens, *asked)
