"""Attention of one layer on a card: bytes of keys and values a second where rows decode, operations where they extend.

The layers of a case lie one behind the other in more memory than the card's cache holds and are computed in turn.
Shares are of the copy's bandwidth and of the matrix product's rate.
"""

from dataclasses import dataclass
from itertools import cycle

import numpy as np
import torch

from ramet.bench.gpu.card import DEVICE, GpuCard, seconds
from ramet.bench.gpu.lines import LineOptions, Lines
from ramet.kernels.attention_call import AttendCall, AttentionRule, Extends
from ramet.kernels.decode_attention import DecodeScratch, decode_attention, plan_decode
from ramet.kernels.extend_attention import ExtendBlocks, extend_attention, tokens_of_tile
from ramet.kernels.tuned import DecodeTuning, ExtendTuning, extend_tuning, processor_of

MIN_BYTES = 1 << 29


@dataclass(frozen=True)
class Shape:
    rows: int
    context: int  # of each row, its new tokens included
    new: int = 1
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    cache: torch.dtype = torch.bfloat16  # of keys and values

    @property
    def name(self) -> str:
        new = f", {self.new} new" if self.new > 1 else ""
        cache = "" if self.cache == torch.bfloat16 else ", float8 cache"
        return f"{self.rows} x {self.context}{new}, {self.heads}/{self.kv_heads} of {self.head_dim}{cache}"

    @property
    def kv_bytes(self) -> int:
        return self.rows * self.context * self.kv_heads * self.head_dim * 2 * self.cache.itemsize

    @property
    def flops(self) -> int:
        cached = self.context - self.new
        return 4 * self.heads * self.head_dim * self.rows * (self.new * cached + self.new * (self.new + 1) // 2)


DECODES = (
    *(Shape(rows, context) for rows, context in ((1, 1024), (1, 8192), (8, 1024), (32, 1024), (64, 512), (128, 512))),
    *(Shape(rows, context) for rows, context in ((256, 384), (256, 1024), (64, 4096), (16, 16384))),
    Shape(128, 1024, heads=32, kv_heads=32), Shape(128, 1024, heads=64, kv_heads=8),
    Shape(64, 1024, heads=16, kv_heads=8, head_dim=256),
)  # fmt: skip
EXTENDS = (
    Shape(1, 2048, 2048), Shape(1, 8192, 8192), Shape(8, 256, 256), Shape(16, 128, 128), Shape(1, 8192, 512),
    Shape(32, 1056, 32), Shape(1, 4096, 4096, heads=16, kv_heads=8, head_dim=256),
)  # fmt: skip


class Pools:
    """Keys and values of a few layers, and rows whose slots are scattered over them."""

    def __init__(self, shape: Shape, min_bytes: int | None = None) -> None:
        num, device = shape.rows * shape.context, DEVICE
        self.shape = shape
        layers = min(16, max(1, -(-(min_bytes or MIN_BYTES) // shape.kv_bytes)))
        size = (num, shape.kv_heads, shape.head_dim)
        self.layers = [
            tuple(torch.randn(size, dtype=torch.bfloat16, device=device).to(shape.cache) for _ in "kv")
            for _ in range(layers)
        ]
        order = torch.randperm(num, device=device, dtype=torch.int32)
        self.table = order.view(shape.rows, shape.context)
        self.rows = torch.arange(shape.rows, dtype=torch.int32, device=device)
        self.lengths = torch.full_like(self.rows, shape.context)
        tokens = shape.rows * shape.new
        qkv = (tokens, shape.heads + 2 * shape.kv_heads, shape.head_dim)
        self.qkv = torch.randn(qkv, dtype=torch.bfloat16, device=device)
        self.out = torch.empty((tokens, shape.heads, shape.head_dim), dtype=torch.bfloat16, device=device)

    def decode(self, tuning: DecodeTuning | None = None) -> float:
        """Seconds of a layer."""
        shape, turns = self.shape, cycle(self.layers)
        scratch = DecodeScratch.of(shape.rows, shape.heads, shape.kv_heads, shape.head_dim, self.table.device)
        plan_decode(self.rows, self.lengths, scratch)
        q, rule = self.qkv[:, : shape.heads], AttentionRule(shape.head_dim**-0.5)

        def run() -> None:
            keys, values = next(turns)
            decode_attention(
                AttendCall(q, None, None, keys, values, self.table, rule), self.out, scratch, tuning=tuning
            )

        return seconds(run, 2 * len(self.layers))

    def extend(self, tuning: ExtendTuning | None = None) -> float:
        shape, turns = self.shape, cycle(self.layers)
        num_new, lengths = np.full(shape.rows, shape.new, np.int32), np.full(shape.rows, shape.context, np.int32)
        tuning = tuning or extend_tuning(shape.head_dim, processor_of(self.table.device))
        blocks = ExtendBlocks.of(num_new, lengths, tokens_of_tile(shape.heads, shape.kv_heads, tuning))
        tiles = [torch.from_numpy(column).to(DEVICE) for column in (blocks.rows, blocks.starts)]
        firsts, new = self.rows * shape.new, torch.full_like(self.rows, shape.new)
        rows, rule = Extends(self.rows, firsts, new, self.lengths, *tiles), AttentionRule(shape.head_dim**-0.5)
        q, k, v = self.qkv.split((shape.heads, shape.kv_heads, shape.kv_heads), dim=1)

        def run() -> None:
            keys, values = next(turns)
            extend_attention(AttendCall(q, k, v, keys, values, self.table, rule), rows, self.out, tuning=tuning)

        return seconds(run, 2 * len(self.layers))


def figures(card: GpuCard, options: LineOptions) -> Lines:
    for shape in DECODES:
        yield decoded(card, shape)
    for shape in EXTENDS:
        yield extended(card, shape)


def decoded(card: GpuCard, shape: Shape) -> tuple[str, dict[str, float]]:
    took = Pools(shape).decode()
    rate = shape.kv_bytes / took
    share = {"gb_per_s": round(rate / 1e9), "of_copy": round(rate / card.copy_bytes_per_s, 3)}
    share |= {"of_read": round(rate / card.read_bytes_per_s, 3)}
    return f"decode {shape.name}", {"us": round(took * 1e6, 1), **share}


def extended(card: GpuCard, shape: Shape) -> tuple[str, dict[str, float]]:
    """Of the limit: the longer of reading keys and values once and multiplying."""
    took = Pools(shape).extend()
    rate = shape.flops / took
    limit = max(shape.kv_bytes / card.read_bytes_per_s, shape.flops / card.flops_per_s)
    share = {"tflop_per_s": round(rate / 1e12, 1), "of_matmul": round(rate / card.flops_per_s, 3)}
    return f"extend {shape.name}", {"us": round(took * 1e6, 1), **share, "of_limit": round(limit / took, 3)}
