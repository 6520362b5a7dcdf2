"""Attention on a GPU by our Triton kernels: rows that decode, what many of them share, and rows that extend.

Decides what of a step goes to the device for them, in one copy. A prepared step reads its rows where they lie, so a
CUDA graph replays it for rows of any length. T new tokens, R rows, H query heads, G kv heads, D head size.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ramet.kernels.decode_attention import CUTS, DecodeScratch, decode_attention, plan_decode
from ramet.kernels.extend_attention import ExtendBlocks, extend_attention, tokens_of_tile
from ramet.kernels.shared_attention import MIN_SHARERS, plan_shared, rows_of_tile, shared_attention
from ramet.kernels.tuned import extend_tuning, processor_of, shared_tuning
from ramet.runtime.arrays import Ints
from ramet.runtime.attention.base import Extends, ForwardInputs, LayerAttention
from ramet.runtime.cache.pool import KVPool

MAX_HEAD_DIM = 512
ALIGNED = 4  # numbers of 16 bytes: so kernels are compiled once
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn)


class TritonRows:
    """The rows of a step on the device: those that decode, in chunks, and those that extend, in tiles."""

    name = "triton"
    prepares_prompts = True  # steps with prompts, too, are planned on the device alone

    def __init__(self, scratch: DecodeScratch, tokens_of_tile: int) -> None:
        self.tokens_of_tile = tokens_of_tile
        self._scratch = scratch
        self._decoding: tuple[Tensor, Tensor] | None = None  # rows of the table and their lengths
        self._extends: Extends | None = None
        self._key_ends: Tensor | None = None  # [T] int32, of a step whose tokens see what comes behind them

    def plan(self, inputs: ForwardInputs) -> None:
        num = inputs.num_decode
        self._decoding, self._extends, self._key_ends = inputs.placed, inputs.extends, None
        if inputs.placed is None and inputs.extends is None:
            firsts = (np.cumsum(inputs.num_new) - inputs.num_new).astype(np.int32)
            tiles = self.tiles(inputs.num_new[num:], inputs.seq_lens[num:])
            columns = (inputs.rows, firsts, inputs.num_new, inputs.seq_lens)
            device = inputs.token_ids.device
            key_ends = () if inputs.key_ends is None else (inputs.key_ends,)
            of_extends = (*(column[num:] for column in columns), *tiles, *key_ends)
            rows, lens, *extends = placed((inputs.rows[:num], inputs.seq_lens[:num], *of_extends), device)
            self._key_ends = extends.pop() if key_ends else None
            self._decoding = (rows, lens) if num else None
            self._extends = Extends(*extends) if num < len(inputs.rows) else None
        if self._decoding is not None:
            plan_decode(*self._decoding, self._scratch)

    def tiles(self, num_new: Ints, seq_lens: Ints) -> tuple[Ints, Ints]:
        """Of rows that extend: which row each tile has, and where in its new tokens it starts."""
        blocks = ExtendBlocks.of(num_new, seq_lens, self.tokens_of_tile)
        return blocks.rows, blocks.starts


class TritonAttention(TritonRows):
    def __init__(self, pool: KVPool, heads: int, layers: Sequence[LayerAttention], max_rows: int) -> None:
        """`max_rows` may decode in one step."""
        self.pool, self._layers = pool, layers
        device = pool.keys[0].device
        scratch = DecodeScratch.of(max_rows, heads, pool.shapes[0].heads, pool.shapes[0].key, device)
        scratches = {of: scratch.beside(heads, of.heads, of.key) for of in pool.shapes}
        shapes = [pool.layers[layer.source(i)] for i, layer in enumerate(layers)]
        self._scratch_of = {i: scratches[of] for i, of in enumerate(shapes) if of.heads}  # others have states
        on = processor_of(device)
        tiles = [tokens_of_tile(heads, of.heads, extend_tuning(of.key, on)) for of in pool.shapes]
        super().__init__(scratch, max(tiles))  # larger heads cut it again
        whole = [of for of, layer in zip(shapes, layers, strict=True) if layer.window is None and of.heads]
        together = [rows_of_tile(heads, of.heads, shared_tuning(of.key, on)) for of in whole]
        self._rows_of_tile = min(together, default=0)
        self._can_share = bool(whole)
        self._shares = False

    def plan(self, inputs: ForwardInputs) -> None:
        super().plan(inputs)
        self._shares = self._can_share and inputs.num_decode >= MIN_SHARERS
        if self._decoding is not None and self._shares:
            plan_shared(*self._decoding, inputs.table, self._scratch.shared, CUTS, self._rows_of_tile)

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
        (keys, values), rule = self.cache(layer), self._layers[layer]
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        asked = rule.scale, rule.window, rule.softcap
        if self._decoding is not None:
            num, scratch, shares = inputs.num_decode, self._scratch_of[layer], self._shares and rule.window is None
            if shares:
                into = inputs.table, self._decoding[0], scratch.shared, scratch.partials, scratch.sums
                shared_attention(q[:num], keys, values, *into, rule.scale, rule.softcap)
            decode_attention(q[:num], keys, values, inputs.table, out[:num], scratch, *asked, sinks, shares)
        if self._extends is not None:
            if k is None or v is None:
                k, v = stored(keys, values, inputs.slots, q.dtype)
            new = *self._extends, out
            tile, key_ends = self.tokens_of_tile, self._key_ends
            extend_attention(
                q, k, v, keys, values, inputs.table, *new, *asked, sinks=sinks, tile=tile, key_ends=key_ends
            )  # fmt: skip
        return out


def fits(pool: KVPool) -> bool:
    """What the kernels can read."""
    return pool.dtype in DTYPES and all(of.key == of.value and of.key <= MAX_HEAD_DIM for of in pool.shapes)


def stored(keys: Tensor, values: Tensor, slots: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """keys and values [S, G, D] at slots [T] -> [T, G, D] each"""
    return keys[slots].to(dtype), values[slots].to(dtype)


def placed(columns: Sequence[Ints], device: torch.device) -> list[Tensor]:
    """Of int32, on the device by one copy, each aligned."""
    sizes = [-(-len(column) // ALIGNED) * ALIGNED for column in columns]
    packed = np.zeros(sum(sizes), np.int32)
    starts = np.cumsum(sizes) - sizes
    for start, column in zip(starts, columns, strict=True):
        packed[start : start + len(column)] = column
    on_device = torch.from_numpy(packed).to(device, non_blocking=True)
    return [on_device[start : start + len(column)] for start, column in zip(starts.tolist(), columns, strict=True)]
