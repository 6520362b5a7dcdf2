"""Attention to latents on the CPU by our kernel: rows that decode meet latents, of long prompts these are expanded.

Decides which rows are expanded: those that take fewer products so, while the keys and values of their heads are at most
latent.MAX_EXPANDED_BYTES. How what meets latents is cut for the threads is kernels/cpu/plan.cpp's.
T new tokens, R rows, H heads, L numbers of a latent, P of a rotated key, C of the rest of a query, V of a value.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ramet.kernels.cpu.attention import AttentionPlanner
from ramet.kernels.cpu.ops import CpuOps
from ramet.runtime.arrays import Ints
from ramet.runtime.attention.base import ForwardInputs, LayerAttention
from ramet.runtime.attention.latent import Heads, LatentBackend, LatentSizes, expands, most_expanded
from ramet.runtime.cache.pool import KVPool


@dataclass(slots=True)
class _Expanded:
    """A row whose latents are: its new tokens [first, stop) of T, the slots of all, and where it is planned."""

    first: int
    stop: int
    slots: Tensor  # [n] int64
    in_order: Tensor  # [1, n] int32, the table that it is planned with
    planner: AttentionPlanner


class LatentCpuAttention(LatentBackend):
    name = "cpu"

    def __init__(
        self, pool: KVPool, heads: int, layers: Sequence[LayerAttention], sizes: LatentSizes, ops: CpuOps
    ) -> None:
        super().__init__(pool, layers, sizes)
        self._ops, self._heads = ops, heads
        self._planner = AttentionPlanner(ops.library, heads, 1, sizes.latent)
        self._planners: list[AttentionPlanner] = []  # of rows that are expanded
        self._most = most_expanded(heads, sizes, pool.dtype.itemsize)

    def plan(self, inputs: ForwardInputs) -> None:
        num_new, seq_lens = inputs.num_new, inputs.seq_lens
        firsts = np.cumsum(num_new, dtype=np.int32) - num_new
        expanded = expands(num_new, seq_lens, self.sizes) & (seq_lens <= self._most)
        expanded[: inputs.num_decode] = False
        meeting = np.flatnonzero(~expanded).astype(np.int32)
        self._stop = int((firsts + num_new)[meeting].max(initial=0))  # of the tokens that meet latents
        if len(meeting):
            at = slice(None) if len(meeting) == len(num_new) else meeting  # all: where they are, for a replay
            offsets = None if inputs.position_offsets is None else inputs.position_offsets[at]
            rows, news, lens = inputs.rows[at], num_new[at], seq_lens[at]
            self._ops.plan(self._planner, inputs.table, rows, firsts[at], news, lens, offsets)
        self._expanded = [self._row(inputs, int(r), firsts, i) for i, r in enumerate(np.flatnonzero(expanded))]

    def _row(self, inputs: ForwardInputs, r: int, firsts: Ints, number: int) -> _Expanded:
        """Row r, planned with a table of its own in which tokens lie in their order."""
        if number == len(self._planners):
            self._planners.append(AttentionPlanner(self._ops.library, self._heads, self._heads, self.sizes.value))
        planner, first, new, length = self._planners[number], firsts[r], inputs.num_new[r], int(inputs.seq_lens[r])
        in_order = torch.from_numpy(np.arange(length, dtype=np.int32)[None])
        zero, news, lens = (np.array([number], np.int32) for number in (0, new, length))
        self._ops.plan(planner, in_order, zero, zero, news, lens)
        slots = torch.from_numpy(inputs.table[int(inputs.rows[r]), :length].numpy().astype(np.int64))
        self._ops.keep(slots)
        return _Expanded(int(first), int(first + new), slots, in_order, planner)

    def attend(self, q: Tensor, heads: Heads, layer: int, inputs: ForwardInputs) -> Tensor:
        content, stop = self.sizes.content, self._stop
        met = None
        if stop:
            absorbed = heads.absorbed(q[:stop, :, :content])
            met = heads.values(self.meet(absorbed, q[:stop, :, content:], layer, inputs))
        if not self._expanded:
            assert met is not None, "a step has rows"
            return met
        out = self._ops.empty(*q.shape[:2], self.sizes.value, dtype=q.dtype)
        if met is not None:
            self._ops.copy(out[:stop], met)
        for row in self._expanded:
            self._attend_row(row, q[row.first : row.stop], heads, layer, out[row.first : row.stop])
        return out

    def meet(self, absorbed: Tensor, turned: Tensor, layer: int, inputs: ForwardInputs) -> Tensor:
        """Only the tokens of rows that are not expanded: others of `absorbed` are not read."""
        latent, (keys, values) = self.sizes.latent, self.cache(layer)
        out = self._ops.empty(*absorbed.shape[:2], latent, dtype=absorbed.dtype)
        scale, turned_keys = self.layers[layer].scale, keys[..., latent:]
        self._ops.attend_to_latents(self._planner, scale, (absorbed, turned), (values, turned_keys), values, out)
        return out

    def _attend_row(self, row: _Expanded, q: Tensor, heads: Heads, layer: int, out: Tensor) -> None:
        """WRITES out [T, H, V] of the row's queries q [T, H, C + P]."""
        sizes = self.sizes
        latents = self._ops.gather(self.pool.keys[layer].flatten(1), row.slots, 1.0)  # [n, L + P]
        of_heads = heads.expanded(latents[:, : sizes.latent])  # [n, H, C + V]
        keys = of_heads[..., : sizes.content], latents[:, None, sizes.latent :]
        queries = q[..., : sizes.content], q[..., sizes.content :]
        scale, values = self.layers[layer].scale, of_heads[..., sizes.content :]
        self._ops.attend_to_latents(row.planner, scale, queries, keys, values, out)
