"""Attention on a GPU by our Triton kernels: rows that decode, what many of them share, and rows that extend.

Decides what of a step goes to the device for them, in one copy. A prepared step reads its rows where they lie, so a
CUDA graph replays it for rows of any length. T new tokens, R rows, H query heads, G kv heads, D head size.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ramet.kernels.attention_call import AttendCall, Extends
from ramet.kernels.decode_attention import CUTS, DecodeScratch, decode_attention, plan_decode
from ramet.kernels.extend_attention import ExtendBlocks, extend_attention, tokens_of_tile
from ramet.kernels.shared_attention import MIN_SHARERS, plan_shared, rows_of_tile, shared_attention
from ramet.kernels.tuned import extend_tuning, processor_of, shared_tuning
from ramet.runtime.arrays import Ints
from ramet.runtime.attention.base import AttentionBackend, ForwardInputs, LayerAttention
from ramet.runtime.cache.pool import KVPool

MAX_HEAD_DIM = 512
ALIGNED = 4  # numbers of 16 bytes: so kernels are compiled once
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn)


class TritonRows:
    """The rows of a step on the device: those that decode, in chunks, and those that extend, in tiles."""

    def __init__(self, scratch: DecodeScratch, tokens_of_tile: int) -> None:
        self.tokens_of_tile = tokens_of_tile
        self.scratch = scratch
        self.decoding: tuple[Tensor, Tensor] | None = None  # rows of the table and their lengths
        self.extends: Extends | None = None
        self.key_ends: Tensor | None = None  # [T] int32, of a step whose tokens see what comes behind them

    def plan(self, inputs: ForwardInputs) -> None:
        self.decoding, self.extends, self.key_ends = inputs.placed, inputs.extends, None
        if inputs.placed is None and inputs.extends is None:
            self._place(inputs)
        self._plan_decode()

    def plan_decoding(self, inputs: ForwardInputs) -> None:
        """Plan the rows that decode alone."""
        num, self.decoding, self.extends, self.key_ends = inputs.num_decode, None, None, None
        if num:
            rows, lens = placed((inputs.rows[:num], inputs.seq_lens[:num]), inputs.token_ids.device)
            self.decoding = rows, lens
        self._plan_decode()

    def tiles(self, num_new: Ints, seq_lens: Ints) -> tuple[Ints, Ints]:
        """For rows that extend: which row each tile has, and where in its new tokens it starts."""
        blocks = ExtendBlocks.of(num_new, seq_lens, self.tokens_of_tile)
        return blocks.rows, blocks.starts

    def _place(self, inputs: ForwardInputs) -> None:
        num = inputs.num_decode
        firsts = (np.cumsum(inputs.num_new) - inputs.num_new).astype(np.int32)
        of_rows = [column[num:] for column in (inputs.rows, firsts, inputs.num_new, inputs.seq_lens)]
        columns = [inputs.rows[:num], inputs.seq_lens[:num], *of_rows, *self.tiles(of_rows[2], of_rows[3])]
        if inputs.key_ends is not None:
            columns.append(inputs.key_ends)
        rows, lens, *extends = placed(columns, inputs.token_ids.device)
        self.key_ends = None if inputs.key_ends is None else extends.pop()
        self.decoding = (rows, lens) if num else None
        self.extends = Extends(*extends) if num < len(inputs.rows) else None

    def _plan_decode(self) -> None:
        if self.decoding is not None:
            plan_decode(*self.decoding, self.scratch)


class TritonAttention(AttentionBackend):
    name = "triton"

    def __init__(self, pool: KVPool, heads: int, layers: Sequence[LayerAttention], max_rows: int) -> None:
        """`max_rows` may decode in one step."""
        super().__init__(pool, layers)
        device = pool.keys[0].device
        scratch = DecodeScratch.of(max_rows, heads, pool.shapes[0].heads, pool.shapes[0].key, device)
        scratches = {of: scratch.beside(heads, of.heads, of.key) for of in pool.shapes}
        shapes = [pool.layers[layer.source(i)] for i, layer in enumerate(layers)]
        self._scratch_of = {i: scratches[of] for i, of in enumerate(shapes) if of.heads}  # others have states
        on = processor_of(device)
        tiles = [tokens_of_tile(heads, of.heads, extend_tuning(of.key, on)) for of in pool.shapes]
        self.rows = TritonRows(scratch, max(tiles))  # larger heads cut a tile again
        whole = [of for of, layer in zip(shapes, layers, strict=True) if layer.window is None and of.heads]
        together = [rows_of_tile(heads, of.heads, shared_tuning(of.key, on)) for of in whole]
        self._rows_of_tile = min(together, default=0)
        self._can_share = bool(whole)
        self._shares = False

    def plan(self, inputs: ForwardInputs) -> None:
        self.rows.plan(inputs)
        self._plan_shared(inputs)

    def plan_decoding(self, inputs: ForwardInputs) -> None:
        """Plan the rows that decode alone: `attend` leaves the output of those that extend as it is."""
        self.rows.plan_decoding(inputs)
        self._plan_shared(inputs)

    def _plan_shared(self, inputs: ForwardInputs) -> None:
        self._shares = self._can_share and inputs.num_decode >= MIN_SHARERS
        if self.rows.decoding is not None and self._shares:
            rows, lens = self.rows.decoding
            plan_shared(rows, lens, inputs.table, self.rows.scratch.shared, CUTS, self._rows_of_tile)

    def attend(self, layer: int, call: AttendCall, inputs: ForwardInputs) -> Tensor:
        out, rows = torch.empty(call.q.shape, dtype=call.q.dtype, device=call.q.device), self.rows
        if rows.decoding is not None:
            scratch, shares = self._scratch_of[layer], self._shares and call.rule.window is None
            if shares:
                shared_attention(call, rows.decoding[0], scratch.shared, scratch.partials, scratch.sums)
            decode_attention(call, out, scratch, shares)
        if rows.extends is not None:
            if call.k is None:
                k, v = stored(call.keys, call.values, inputs.slots, call.q.dtype)
                call = call._replace(k=k, v=v)
            extend_attention(call, rows.extends, out, tile=rows.tokens_of_tile, key_ends=rows.key_ends)
        return out


def fits(pool: KVPool) -> bool:
    """What the kernels can read."""
    return pool.dtype in DTYPES and all(of.key == of.value and of.key <= MAX_HEAD_DIM for of in pool.shapes)


def stored(keys: Tensor, values: Tensor, slots: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """keys and values [S, G, D] at slots [T] -> [T, G, D] each"""
    return keys[slots].to(dtype), values[slots].to(dtype)


def placed(columns: Sequence[Ints], device: torch.device) -> list[Tensor]:
    """Columns of int32 on the device by one copy, each aligned."""
    sizes = [-(-len(column) // ALIGNED) * ALIGNED for column in columns]
    packed = np.zeros(sum(sizes), np.int32)
    starts = np.cumsum(sizes) - sizes
    for start, column in zip(starts, columns, strict=True):
        packed[start : start + len(column)] = column
    on_device = torch.from_numpy(packed).to(device, non_blocking=True)
    return [on_device[start : start + len(column)] for start, column in zip(starts.tolist(), columns, strict=True)]
