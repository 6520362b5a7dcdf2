"""Attention in plain torch on any device: the oracle of the others and the way where no kernel is at hand.

Knows the pool and nothing of the model but the scale. Gathers every row's keys and values, one row after the other.
"""

from torch import Tensor

from ramet.kernels import reference as kernels
from ramet.runtime.attention.base import ForwardInputs
from ramet.runtime.cache.pool import KVPool


class ReferenceAttention:
    name = "reference"

    def __init__(self, pool: KVPool) -> None:
        self.pool = pool
        self._scale = pool.head_dim**-0.5

    def plan(self, inputs: ForwardInputs) -> None:
        self._table = inputs.table[inputs.rows.tolist()]  # [R, L]
        self._num_new, self._seq_lens = inputs.num_new.tolist(), inputs.seq_lens.tolist()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: int, inputs: ForwardInputs) -> Tensor:
        keys, values = self.pool.keys[layer], self.pool.values[layer]
        kernels.store_kv(k, v, keys, values, inputs.slots)
        return kernels.extend_attention(q, keys, values, self._table, self._num_new, self._seq_lens, self._scale)
