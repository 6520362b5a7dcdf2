"""Products of a layer of an 8B shape, T tokens each, T in steps of 64: where waves of tiles fill the card.

Weights are read from memory: those of a product lie one behind the other in more than the card's cache holds.
"""

from itertools import cycle
from typing import Any

import torch

from ramet.bench.gpu.card import DEVICE, GpuCard, seconds
from ramet.bench.gpu.lines import LineOptions, Lines
from ramet.bench.loads import SHAPE_8B

MIN_BYTES = 1 << 28
TOKENS = range(64, 2049, 64)


def sizes_of(shape: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """(inputs, outputs) of the products of a layer."""
    hidden, inner = shape["hidden_size"], shape["intermediate_size"]
    kv = hidden // shape["num_attention_heads"] * shape["num_key_value_heads"]
    return {
        "qkv": (hidden, hidden + 2 * kv), "o": (hidden, hidden),
        "gate_up": (hidden, 2 * inner), "down": (inner, hidden),
    }  # fmt: skip


def limit_s(
    card: GpuCard, tokens: int, num_in: int, num_out: int, weight_bytes: float = 2.0, speed: float = 1.0
) -> float:
    """The longer of reading the weights and multiplying. `speed`: of products, as a multiple of bfloat16's."""
    read = num_in * num_out * weight_bytes / card.read_bytes_per_s
    return max(read, 2 * tokens * num_in * num_out / (speed * card.flops_per_s))


def figures(card: GpuCard, options: LineOptions) -> Lines:
    sizes = sizes_of(SHAPE_8B)
    weights = {name: _weights(*size) for name, size in sizes.items()}
    for tokens in TOKENS:
        took, rates = 0.0, {}
        for name, (num_in, num_out) in sizes.items():
            x, turns = torch.randn(tokens, num_in, dtype=torch.bfloat16, device=DEVICE), cycle(weights[name])
            one = seconds(lambda x=x, turns=turns: x @ next(turns).T, 2 * len(weights[name]))  # type: ignore[misc]
            rates[f"{name}_tflop_per_s"] = round(2 * tokens * num_in * num_out / one / 1e12, 1)
            took += one
        flops = sum(2 * tokens * num_in * num_out for num_in, num_out in sizes.values())
        limit = sum(limit_s(card, tokens, *size) for size in sizes.values())
        shares = {"of_matmul": round(flops / took / card.flops_per_s, 3), "of_limit": round(limit / took, 3)}
        yield f"products of {tokens} tokens", {"us": round(took * 1e6, 1), **shares, **rates}


def _weights(num_in: int, num_out: int) -> list[torch.Tensor]:
    size = (num_out, num_in)
    num = -(-MIN_BYTES // (2 * num_in * num_out))
    return [torch.randn(size, dtype=torch.bfloat16, device=DEVICE) for _ in range(num)]
