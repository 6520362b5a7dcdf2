"""Attention on the CPU: our kernel for decoding rows and short extends, torch's fused attention for long extends.

Decides which row goes where; without compiled kernels every row takes torch's way. A long extend attends to its own new
tokens without a copy and to its gathered cached prefix, and both results are merged by their log-sum-exp.
T new tokens, H query heads, G kv heads, D head size.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ramet.kernels import reference
from ramet.kernels.cpu.ops import DTYPES, CpuOps, Plan
from ramet.runtime.arrays import Ints
from ramet.runtime.attention.base import ForwardInputs
from ramet.runtime.attention.work import Work, cut
from ramet.runtime.cache.pool import KVPool

LONG_EXTEND = 64  # new tokens of a row from which torch's matrix products beat our vector loops
MAX_HEAD_DIM = 256

flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@dataclass(frozen=True, slots=True)
class LongRow:
    """One row's new tokens [first, stop) of T and the slots of what it has cached."""

    first: int
    stop: int
    prefix: Tensor | None  # [P] int64


def fits(pool: KVPool) -> bool:
    """What the kernel is compiled for."""
    return pool.head_dim % 16 == 0 and pool.head_dim <= MAX_HEAD_DIM and pool.keys[0].dtype in DTYPES


class CpuAttention:
    name = "cpu"

    def __init__(self, pool: KVPool, heads: int, ops: CpuOps | None) -> None:
        self.pool = pool
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
            ops.attend(self._plan, q, keys, values, out)
        for row in self._long:
            at = slice(row.first, row.stop)
            out[at] = attend_long(q[at], k[at], v[at], keys, values, row.prefix)
        return out

    def _long_row(self, inputs: ForwardInputs, r: int, firsts: Ints) -> LongRow:
        num_new, first = int(inputs.num_new[r]), int(firsts[r])
        num_cached = int(inputs.seq_lens[r]) - num_new
        prefix = inputs.table[int(inputs.rows[r]), :num_cached].long() if num_cached else None
        return LongRow(first, first + num_new, prefix)

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
            scale=self.pool.head_dim**-0.5,
        )


def attend_long(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, prefix: Tensor | None) -> Tensor:
    """q [n, H, D] over its own k, v [n, G, D] causally and over the pool's slots `prefix` [P] whole -> [n, H, D]."""
    own, own_lse = flash(_heads_first(q), _heads_first(k), _heads_first(v), 0.0, True)  # [1, H, n, D], [1, H, n]
    if prefix is None:
        return own[0].transpose(0, 1)
    cached_k, cached_v = keys.index_select(0, prefix), values.index_select(0, prefix)  # [P, G, D]
    cached, cached_lse = flash(_heads_first(q), _heads_first(cached_k), _heads_first(cached_v), 0.0, False)
    share = torch.sigmoid(own_lse - cached_lse)[..., None]  # of the softmax's mass that lies on the new tokens
    return torch.lerp(cached.float(), own.float(), share)[0].transpose(0, 1)


def _heads_first(x: Tensor) -> Tensor:
    """[n, heads, D] -> [1, heads, n, D], no copy."""
    return x.transpose(0, 1)[None]
