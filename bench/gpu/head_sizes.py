"""Attention with heads of 64 and 256 numbers."""

import torch

from ramet.bench.gpu.attention import Shape, decoded, extended
from ramet.bench.gpu.card import GpuCard
from ramet.bench.gpu.lines import LineOptions, Lines

HEADS = ((32, 8, 64), (16, 8, 256))
LOADS = ((1, 8192, 1), (128, 1024, 1), (1, 4096, 4096), (8, 256, 256), (1, 8192, 512))  # rows, context, new


def figures(card: GpuCard, options: LineOptions) -> Lines:
    for heads in HEADS:
        for load in LOADS:
            shape = Shape(*load, *heads)
            yield (decoded if shape.new == 1 else extended)(card, shape)
            torch.cuda.empty_cache()
