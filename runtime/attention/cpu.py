"""Attention on the CPU: our kernel for decoding rows and short extends, torch's fused attention for long extends.

Decides which row goes where; without compiled kernels every row takes torch's way. A long extend attends to its own new
tokens without a copy and to its gathered cached prefix, and both results are merged by their log-sum-exp. Where a
window hides some of its keys or scores are capped, it goes in blocks of queries (attention/blocks.py).
T new tokens, H query heads, G kv heads, D head size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ramet.kernels import reference
from ramet.kernels.cpu.ops import DTYPES, CpuOps, Plan, Rule
from ramet.runtime.arrays import Ints
from ramet.runtime.attention.base import ForwardInputs, LayerAttention
from ramet.runtime.attention.blocks import attend_in_blocks, flash, heads_first
from ramet.runtime.attention.work import Work, cut
from ramet.runtime.cache.pool import KVPool

LONG_EXTEND = 64  # new tokens of a row from which torch's matrix products beat our vector loops
MAX_HEAD_DIM = 256


@dataclass(frozen=True, slots=True)
class LongRow:
    """One row's new tokens [first, stop) of T and the slots of all its tokens, of which they are the last."""

    first: int
    stop: int
    slots: Tensor  # [P + n] int64

    @property
    def prefix(self) -> Tensor:
        """[P], the slots of what is cached"""
        return self.slots[: len(self.slots) - (self.stop - self.first)]


def fits(pool: KVPool) -> bool:
    """What the kernel is compiled for."""
    return pool.head_dim % 16 == 0 and pool.head_dim <= MAX_HEAD_DIM and pool.keys[0].dtype in DTYPES


class CpuAttention:
    name = "cpu"

    def __init__(self, pool: KVPool, heads: int, layers: Sequence[LayerAttention], ops: CpuOps | None) -> None:
        self.pool = pool
        self._layers = layers
        self._rules = [Rule(layer.scale, layer.window or 0, layer.softcap or 0.0) for layer in layers]
        self._ops = ops
        self._heads = heads
        self._partial_out = torch.empty(0)
        self._partial_lse = torch.empty(0)

    def plan(self, inputs: ForwardInputs) -> None:
        num_new = inputs.num_new
        firsts = np.cumsum(num_new, dtype=np.int32) - num_new
        long = num_new >= (LONG_EXTEND if self._ops is not None else 1)
        self._long = [self._long_row(inputs, int(r), firsts) for r in np.flatnonzero(long)]
        short = np.flatnonzero(~long).astype(np.int32)
        self._plan = self._plan_short(inputs, short, firsts, self._ops) if len(short) and self._ops else None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: int, inputs: ForwardInputs) -> Tensor:
        keys, values = self.pool.keys[layer], self.pool.values[layer]
        ops = self._ops
        store_kv = ops.store_kv if ops is not None else reference.store_kv
        store_kv(k, v, keys, values, inputs.slots)
        out = torch.empty(q.shape, dtype=q.dtype)
        if ops is not None and self._plan is not None:
            ops.attend(self._plan, self._rules[layer], q, keys, values, out)
        for row in self._long:
            at = slice(row.first, row.stop)
            out[at] = _attend_row(row, q[at], k[at], v[at], keys, values, self._layers[layer])
        return out

    def _long_row(self, inputs: ForwardInputs, r: int, firsts: Ints) -> LongRow:
        first = int(firsts[r])
        slots = inputs.table[int(inputs.rows[r]), : int(inputs.seq_lens[r])].long()
        return LongRow(first, first + int(inputs.num_new[r]), slots)

    def _plan_short(self, inputs: ForwardInputs, short: Ints, firsts: Ints, ops: CpuOps) -> Plan:
        threads = ops.threads
        table = inputs.table.numpy()
        work = cut(table, inputs.rows[short], firsts[short], inputs.num_new[short], inputs.seq_lens[short], threads)
        limits = inputs.positions.numpy().astype(np.int32) + 1
        self._kept = work, limits  # the plan holds bare addresses
        self._fit_partials(work.num_partials)
        return self._pack(work, limits, table, threads)

    def _fit_partials(self, num: int) -> None:
        heads, head_dim = self._heads, self.pool.head_dim
        if self._partial_lse.shape[0] < num:
            self._partial_out = torch.empty(num, heads, head_dim)
            self._partial_lse = torch.empty(num, heads, 2)

    def _pack(self, work: Work, limits: Ints, table: Ints, threads: int) -> Plan:
        return Plan(
            items=work.items.ctypes.data,
            members=work.members.ctypes.data,
            limits=limits.ctypes.data,
            partials=work.partials.ctypes.data,
            merges=work.merges.ctypes.data,
            table=table.ctypes.data,
            table_stride=table.shape[1],
            partial_out=self._partial_out.data_ptr(),
            partial_lse=self._partial_lse.data_ptr(),
            num_items=len(work.items),
            num_merges=len(work.merges),
            heads=self._heads,
            kv_heads=self.pool.keys[0].shape[1],
            head_dim=self.pool.head_dim,
            threads=threads,
        )


def _attend_row(
    row: LongRow, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, layer: LayerAttention
) -> Tensor:
    if layer.softcap is not None or (layer.window is not None and layer.window < len(row.slots)):
        return attend_in_blocks(q, keys, values, row.slots, layer)
    return attend_long(q, k, v, keys, values, row.prefix, layer.scale)


def attend_long(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, prefix: Tensor, scale: float) -> Tensor:
    """q [n, H, D] over its own k, v [n, G, D] causally and over the pool's slots `prefix` [P] whole -> [n, H, D]."""
    queries = heads_first(q)
    own, own_lse = flash(queries, heads_first(k), heads_first(v), 0.0, True, scale=scale)  # [1, H, n, D], [1, H, n]
    if not len(prefix):
        return own[0].transpose(0, 1)
    cached_k, cached_v = keys.index_select(0, prefix), values.index_select(0, prefix)  # [P, G, D]
    cached, cached_lse = flash(queries, heads_first(cached_k), heads_first(cached_v), 0.0, False, scale=scale)
    share = torch.sigmoid(own_lse - cached_lse)[..., None]  # of the softmax's mass that lies on the new tokens
    return torch.lerp(cached.float(), own.float(), share)[0].transpose(0, 1)
