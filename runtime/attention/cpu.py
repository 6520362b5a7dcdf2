"""Attention on the CPU: our kernel, or torch (long_extends.py) where nothing could be compiled.

How rows are cut for the threads, and which of them read a shared prefix together, is kernels/cpu/plan.cpp's.
T new tokens, R rows, H query heads.
"""

import sys
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ramet.kernels.attention_call import AttendCall
from ramet.kernels.cpu.attention import AttentionPlanner
from ramet.kernels.cpu.native import DTYPES
from ramet.kernels.cpu.ops import CpuOps
from ramet.kernels.cpu.structs import ScoreRule
from ramet.runtime.arrays import Ints
from ramet.runtime.attention.base import AttentionBackend, ForwardInputs, LayerAttention
from ramet.runtime.attention.long_extends import LongRow, attend_row
from ramet.runtime.cache.pool import KVPool

MAX_HEAD_DIM = 512


def fits(pool: KVPool) -> bool:
    """What the kernel is compiled for."""
    is_read = all(of.key == of.value and of.key % 16 == 0 and of.key <= MAX_HEAD_DIM for of in pool.shapes)
    return is_read and pool.dtype in (*DTYPES, torch.int8)


class CpuAttention(AttentionBackend):
    name = "cpu"
    long_extend = sys.maxsize  # new tokens of a row from which it is attended in torch
    attend_row = staticmethod(attend_row)

    def __init__(self, pool: KVPool, heads: int, layers: Sequence[LayerAttention], ops: CpuOps | None) -> None:
        super().__init__(pool, layers)
        self._rules = [ScoreRule(layer.scale, layer.window or 0, layer.softcap or 0.0) for layer in layers]
        self._ops = ops
        planners = (
            {} if ops is None else {of: AttentionPlanner(ops.library, heads, of.heads, of.key) for of in pool.shapes}
        )
        self._planners = list(planners.values())
        self._planner_of = [planners.get(pool.layers[layer.source(i)]) for i, layer in enumerate(layers)]

    def plan(self, inputs: ForwardInputs) -> None:
        num_new, ops = inputs.num_new, self._ops
        firsts = np.cumsum(num_new, dtype=np.int32) - num_new
        is_long = num_new >= (self.long_extend if ops is not None else 1)
        self._long: list[LongRow] = []
        for r in np.flatnonzero(is_long):
            self._long.append(self._long_row(inputs, int(r), firsts))
        self._has_short = len(self._long) < len(num_new)
        if not self._has_short:
            return
        assert ops is not None, "without compiled kernels all rows are long"
        at = np.flatnonzero(~is_long) if self._long else slice(None)  # all: where they are, which a replay reads again
        offsets = None if inputs.position_offsets is None else inputs.position_offsets[at]
        rows, starts, num_new, seq_lens = inputs.rows[at], firsts[at], num_new[at], inputs.seq_lens[at]
        for planner in self._planners:
            ops.plan(planner, inputs.table, rows, starts, num_new, seq_lens, offsets, inputs.key_ends)

    def attend(self, layer: int, call: AttendCall, inputs: ForwardInputs) -> Tensor:
        q, ops, planner = call.q, self._ops, self._planner_of[layer]
        out = torch.empty(q.shape, dtype=q.dtype) if ops is None else ops.empty(*q.shape, dtype=q.dtype)
        if ops is not None and planner is not None and self._has_short:
            rule = self._rules[layer]
            if call.sinks is not None:
                assert call.sinks.dtype == torch.float32 and call.sinks.is_contiguous(), call.sinks.dtype
                rule.sinks = call.sinks.data_ptr()  # which a replay reads again
            ops.attend(planner, rule, q, call.keys, call.values, out)
        for row in self._long:
            at = slice(row.first, row.stop)
            out[at] = self.attend_row(row, call.of_tokens(at))
        return out

    def _long_row(self, inputs: ForwardInputs, r: int, firsts: Ints) -> LongRow:
        first = int(firsts[r])
        slots = inputs.table[int(inputs.rows[r]), : int(inputs.seq_lens[r])].long()
        stop = first + int(inputs.num_new[r])
        ends = None if inputs.key_ends is None else torch.from_numpy(inputs.key_ends[first:stop])
        return LongRow(first, stop, slots, ends)
