"""One long row that decodes, of models with 8, 4, 2 and 1 heads of keys and values: how much of the card is at work."""

import torch

from ramet.bench.gpu.attention import Shape, decoded
from ramet.bench.gpu.card import GpuCard
from ramet.bench.gpu.lines import LineOptions, Lines

HEADS = ((32, 8), (28, 4), (16, 2), (8, 1))
SHAPES = tuple(Shape(1, context, heads=of[0], kv_heads=of[1]) for of in HEADS for context in (8192, 131072))


def figures(card: GpuCard, options: LineOptions) -> Lines:
    for shape in SHAPES:
        yield decoded(card, shape)
        torch.cuda.empty_cache()
