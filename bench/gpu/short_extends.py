"""Few new tokens behind a long prefix that is cached: a turn of a chat, a jump forward. What is read decides."""

import torch

from ramet.bench.gpu.attention import Shape, extended
from ramet.bench.gpu.card import GpuCard
from ramet.bench.gpu.lines import LineOptions, Lines

NEW = 32
SHAPES = tuple(Shape(1, cached + NEW, NEW) for cached in (8192, 32768, 131072))


def figures(card: GpuCard, options: LineOptions) -> Lines:
    for shape in SHAPES:
        yield extended(card, shape)
        torch.cuda.empty_cache()
