"""Attention over keys and values in float8 e4m3, which are half of the bytes."""

from dataclasses import replace

import torch

from ramet.bench.gpu.attention import Shape, decoded, extended
from ramet.bench.gpu.card import GpuCard
from ramet.bench.gpu.lines import LineOptions, Lines

SHAPES = tuple(
    replace(shape, cache=torch.float8_e4m3fn)
    for shape in (
        Shape(1, 8192), Shape(32, 1024), Shape(256, 384), Shape(128, 1024), Shape(16, 16384),
        Shape(1, 8192, 512), Shape(32, 1056, 32),
    )
)  # fmt: skip


def figures(card: GpuCard, options: LineOptions) -> Lines:
    for shape in SHAPES:
        yield (decoded if shape.new == 1 else extended)(card, shape)
        torch.cuda.empty_cache()
