"""Prompts by FlashInfer's kernels, where that package is installed; rows that decode by ours, as triton.py has them.

FlashInfer (Ye et al. 2025) plans on the host for each step, which a CUDA graph cannot replay, so it gets what no graph
has: rows with more than one new token. It reads all their keys and values, the new ones included, from the pool by
slots, as pages of one token. Its plan is written to pinned memory and copied from there behind earlier steps, so two
planners take turns, and one is planned again once its copy is done.
E rows that extend, T new tokens, H query heads, G kv heads, D head size, S slots of the pool, L longest context.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ramet.kernels.attention_call import AttendCall
from ramet.runtime.arrays import Ints
from ramet.runtime.attention import triton
from ramet.runtime.attention.base import AttentionBackend, ForwardInputs, LayerAttention
from ramet.runtime.cache.pool import KVPool, KVShape
from ramet.runtime.errors import ConfigError

WORKSPACE_BYTES = 128 << 20  # what FlashInfer recommends
HEAD_SIZES = (64, 128, 256)
QUERIES = (torch.bfloat16, torch.float16)
PLANNERS = 2


class Planner:
    """A wrapper of FlashInfer's for each kind of layer, planned together."""

    def __init__(self, kinds: Sequence[LayerAttention], workspace: Tensor) -> None:
        wrapper = package().BatchPrefillWithPagedKVCacheWrapper
        self._wrappers = {kind: wrapper(workspace, "NHD") for kind in kinds}
        self._planned: torch.cuda.Event | None = None

    def plan(self, num_new: Ints, seq_lens: Ints, slots: Tensor, heads: int, pool: KVPool, dtype: torch.dtype) -> None:
        """Rows with num_new [E] of seq_lens [E] tokens, whose slots [sum of seq_lens] int32 are on the device."""
        if self._planned is not None:
            self._planned.synchronize()
        q_starts, kv_starts = _starts(num_new), _starts(seq_lens)
        last_page = torch.ones(len(seq_lens), dtype=torch.int32)
        (of,) = pool.shapes
        for kind, wrapper in self._wrappers.items():
            wrapper.plan(
                q_starts, kv_starts, slots, last_page, heads, of.heads, of.key, 1, causal=True, sm_scale=kind.scale,
                window_left=-1 if kind.window is None else kind.window - 1, logits_soft_cap=kind.softcap or 0.0,
                q_data_type=dtype, kv_data_type=pool.dtype,
            )  # fmt: skip
        self._planned = torch.cuda.Event()
        self._planned.record()

    def run(self, q: Tensor, keys: Tensor, values: Tensor, kind: LayerAttention, out: Tensor) -> None:
        """q [T, H, D], keys and values [S, G, D]. WRITES out [T, H, D]."""
        self._wrappers[kind].run(q.contiguous(), (keys[:, None], values[:, None]), out=out)


class FlashInferAttention(AttentionBackend):
    name = "flashinfer"

    def __init__(
        self, pool: KVPool, heads: int, layers: Sequence[LayerAttention], max_rows: int, dtype: torch.dtype
    ) -> None:
        """`dtype` of queries."""
        super().__init__(pool, layers)
        self._triton = triton.TritonAttention(pool, heads, layers, max_rows)
        workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=pool.keys[0].device)
        kinds = list(dict.fromkeys(layers))
        self._heads, self._dtype = heads, dtype
        self._planners = [Planner(kinds, workspace) for _ in range(PLANNERS)]
        self._turn = 0
        self._extending: Planner | None = None

    def plan(self, inputs: ForwardInputs) -> None:
        num = inputs.num_decode
        self._extending = None
        if inputs.placed is not None or num == len(inputs.rows) or inputs.key_ends is not None:
            self._triton.plan(inputs)
            return
        self._triton.plan_decoding(inputs)
        planner = self._planners[self._turn]
        self._turn = (self._turn + 1) % PLANNERS
        num_new, seq_lens = inputs.num_new[num:], inputs.seq_lens[num:]
        slots = slots_of(inputs.table, inputs.rows[num:], seq_lens)
        planner.plan(num_new, seq_lens, slots, self._heads, self.pool, self._dtype)
        self._extending = planner

    def attend(self, layer: int, call: AttendCall, inputs: ForwardInputs) -> Tensor:
        out, num = self._triton.attend(layer, call, inputs), inputs.num_decode
        if self._extending is not None:
            self._extending.run(call.q[num:], call.keys, call.values, self.layers[layer], out[num:])
        return out


def package() -> Any:
    """Raises ConfigError where it is not installed."""
    try:
        import flashinfer
    except ImportError as error:
        raise ConfigError(
            f"--attention-backend is flashinfer, which cannot be imported ({error}); pip install flashinfer-python, or "
            "use triton"
        ) from None
    return flashinfer


def fits(pool: KVPool, layers: Sequence[LayerAttention], dtype: torch.dtype) -> bool:
    """Its kernels read heads of one size, and know no sinks."""
    is_read = pool.shapes in [(KVShape.of(pool.shapes[0].heads, size),) for size in HEAD_SIZES]
    is_read = is_read and not any(layer.sinks for layer in layers)
    return is_read and dtype in QUERIES and pool.dtype in (dtype, torch.float8_e4m3fn)


def slots_of(table: Tensor, rows: Ints, seq_lens: Ints) -> Tensor:
    """table [rows of the table, L] int32 -> [sum of seq_lens] int32, those of rows [E] one behind the other."""
    total = int(seq_lens.sum())
    of_table, lens, starts = triton.placed((rows, seq_lens, _starts(seq_lens)[:-1].numpy()), table.device)
    row, start = (torch.repeat_interleave(column, lens, output_size=total) for column in (of_table, starts))
    return table[row, torch.arange(total, device=table.device) - start]


def _starts(lens: Ints) -> Tensor:
    """[E] -> [E + 1] int32 on the host"""
    return torch.from_numpy(np.concatenate(([0], np.cumsum(lens))).astype(np.int32))
