"""Attention of whole prompts beside torch's own by cuDNN, which reads keys and values side by side."""

from itertools import cycle

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ramet.bench.gpu.attention import MIN_BYTES, Shape, extended
from ramet.bench.gpu.card import DEVICE, GpuCard, seconds
from ramet.bench.gpu.lines import LineOptions, Lines

SHAPES = (
    *(Shape(rows, new, new) for rows, new in ((8, 1024), (1, 2048), (1, 8192), (1, 32768))),
    Shape(1, 8192, 8192, heads=32, kv_heads=8, head_dim=64), Shape(1, 8192, 8192, heads=16, kv_heads=8, head_dim=256),
)  # fmt: skip


def figures(card: GpuCard, options: LineOptions) -> Lines:
    for shape in SHAPES:
        name, found = extended(card, shape)
        took = by_cudnn(shape)
        if took is not None:
            found |= {"cudnn_us": round(took * 1e6, 1), "times_cudnn": round(found["us"] / took / 1e6, 2)}
        yield name, found
        torch.cuda.empty_cache()


def by_cudnn(shape: Shape) -> float | None:
    """Seconds of a layer. Keys are there once for each query head. None: cuDNN has none for such heads."""
    size = (shape.rows, shape.heads, shape.new, shape.head_dim)
    bytes_of_all = 3 * shape.rows * shape.heads * shape.new * shape.head_dim * 2
    num = min(16, max(1, -(-MIN_BYTES // bytes_of_all)))
    turns = cycle([[torch.randn(size, dtype=torch.bfloat16, device=DEVICE) for _ in "qkv"] for _ in range(num)])

    def run() -> None:
        q, k, v = next(turns)
        scaled_dot_product_attention(q, k, v, is_causal=True)

    try:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), torch.inference_mode():
            return seconds(run, 2 * num)
    except RuntimeError as error:
        print(f"cuDNN, {shape.name}: {error}", flush=True)
        return None
