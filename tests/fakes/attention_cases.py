"""Not a fake: cases of attention over a pool with scattered slots, for kernels on any device, and the oracle's answer.

R rows, H query heads, G kv heads, D head size.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ramet.kernels import reference
from ramet.kernels.attention_call import AttendCall, AttentionRule, Extends
from ramet.kernels.decode_attention import CUTS, DecodeScratch, decode_attention, plan_decode
from ramet.kernels.extend_attention import ExtendBlocks, extend_attention, tokens_of_tile
from ramet.kernels.shared_attention import plan_shared, rows_of_tile, shared_attention
from ramet.kernels.tuned import extend_tuning, processor_of, shared_tuning

Rows = list[tuple[int, int]]  # cached and new tokens of each


@dataclass
class Case:
    """Rows over one pool; the last keys and values of each are those of its new tokens."""

    rows: Rows
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    dtype: torch.dtype = torch.float32
    page: int = 1
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False
    shared: int = 0  # tokens that rows of at least so many have in common
    cache: torch.dtype | None = None  # of the pool; None: as the queries
    ahead: tuple[tuple[int, int], ...] = ()  # spans of the T new tokens that see each other
    size: float = 1.0  # of queries, so that weights are spread or lie on few keys

    def on(self, device: torch.device, seed: int = 0) -> "Placed":
        return Placed(self, device, seed)


class Placed:
    """The tensors of a case on a device."""

    def __init__(self, case: Case, device: torch.device, seed: int) -> None:
        self.case, self.device = case, device
        chance = torch.Generator().manual_seed(seed)
        lengths = [cached + new for cached, new in case.rows]
        pages = [-(-length // case.page) for length in lengths]
        order = torch.randperm(sum(pages) + 3, generator=chance)
        num_slots = case.page * len(order)

        def random(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=chance).to(case.dtype)

        total = sum(new for _, new in case.rows)
        qkv = random(total, case.heads + 2 * case.kv_heads, case.head_dim)
        qkv[:, : case.heads] *= case.size
        keys, values = (random(num_slots, case.kv_heads, case.head_dim) for _ in range(2))
        keys, values = (reference.stored(x, case.cache or case.dtype) for x in (keys, values))
        table = torch.zeros((len(lengths) + 2, max(lengths) + 5), dtype=torch.int32)
        rows = torch.randperm(len(table), generator=chance)[: len(lengths)].int()
        self.firsts, first, page, common = [], 0, 0, None
        k, v = qkv[:, case.heads : case.heads + case.kv_heads], qkv[:, case.heads + case.kv_heads :]
        for row, length, num, (_, new) in zip(rows.tolist(), lengths, pages, case.rows, strict=True):
            slots = (order[page : page + num, None] * case.page + torch.arange(case.page)).flatten()[:length]
            if case.shared and length - new >= case.shared:
                common = slots[: case.shared] if common is None else common
                slots[: case.shared] = common
            table[row, :length] = slots.int()
            own = slice(first, first + new)
            reference.store_kv(k[own], v[own], keys, values, slots[length - new :])
            self.firsts.append(first)
            first, page = first + new, page + num
        self.sinks = random(case.heads).to(device) * 2 if case.sinks else None
        self.lengths, self.num_new = lengths, [new for _, new in case.rows]
        self.qkv, self.keys, self.values, self.table, self.rows = (
            x.to(device) for x in (qkv, keys, values, table, rows)
        )

    @property
    def queries(self) -> Tensor:
        return self.qkv[:, : self.case.heads]

    def column(self, numbers: Any) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int32, device=self.device)

    @property
    def call(self) -> AttendCall:
        case = self.case
        k, v = self.qkv[:, case.heads :].split(case.kv_heads, dim=1)
        rule = AttentionRule(case.head_dim**-0.5, case.window, case.softcap)
        return AttendCall(self.queries, k, v, self.keys, self.values, self.table, rule, self.sinks)

    def expected(self) -> Tensor:
        return reference.extend_attention(self.call, self.rows.tolist(), self.num_new, self.lengths, self.key_ends)

    @property
    def key_ends(self) -> Tensor | None:
        if not self.case.ahead:
            return None
        key_ends = torch.cat([torch.arange(cached, cached + new) for cached, new in self.case.rows]) + 1
        for first, stop in self.case.ahead:
            key_ends[first:stop] = key_ends[stop - 1].item()
        return key_ends.int().to(self.device)

    def decoded(self, tuning: Any = None, shares: bool = False) -> Tensor:
        case, lengths = self.case, self.column(self.lengths)
        scratch = DecodeScratch.of(len(self.lengths), case.heads, case.kv_heads, case.head_dim, self.device)
        out = torch.full_like(self.queries, float("nan"), memory_format=torch.contiguous_format)
        plan_decode(self.rows, lengths, scratch)
        if shares:
            per_tile = rows_of_tile(case.heads, case.kv_heads, shared_tuning(case.head_dim, processor_of(self.device)))
            plan_shared(self.rows, lengths, self.table, scratch.shared, CUTS, per_tile)
            shared_attention(self.call, self.rows, scratch.shared, scratch.partials, scratch.sums)
        self.scratch = scratch
        decode_attention(self.call, out, scratch, shares, tuning)
        assert not scratch.arrived.any(), "the counters of rows are as they were"
        return out

    def extended(self, tuning: Any = None, parts: int = 1) -> Tensor:
        """`parts`: programs that share a tile."""
        case = self.case
        tuning = tuning or extend_tuning(case.head_dim, processor_of(self.device))
        tokens = tokens_of_tile(case.heads, case.kv_heads, tuning) * parts
        blocks = ExtendBlocks.of(np.array(self.num_new, np.int32), np.array(self.lengths, np.int32), tokens)
        out = torch.full_like(self.queries, float("nan"), memory_format=torch.contiguous_format)
        of = self.rows, self.column(self.firsts), self.column(self.num_new), self.column(self.lengths)
        rows = Extends(*of, self.column(blocks.rows), self.column(blocks.starts))
        extend_attention(self.call, rows, out, tile=tokens, key_ends=self.key_ends, tuning=tuning)
        return out
