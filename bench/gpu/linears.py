"""Linear layers of an 8B shape whose weights are packed, beside bfloat16's: microseconds of the four of a layer.

The limit reads the packed weights or multiplies: float8 at twice the rate of bfloat16, 4 bits at the same rate.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from itertools import cycle
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ramet.bench.gpu.card import DEVICE, GpuCard, seconds
from ramet.bench.gpu.lines import PRODUCT_SPEED, WEIGHT_BYTES, LineOptions, Lines
from ramet.bench.gpu.products import limit_s, sizes_of
from ramet.bench.loads import SHAPE_8B
from ramet.kernels.linear_fp8 import Fp8Weight
from ramet.kernels.linear_int4 import GpuInt4Weight

MIN_BYTES = 1 << 27  # of a product's weights, one behind the other: more than the card's cache holds
TOKENS = (1, 8, 16, 32, 64, 128, 256)
GROUP = 128


class Plain:
    """What is packed has this method too."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight

    def linear(self, x: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(x, self._weight, bias)

    def copy(self) -> "Plain":
        return Plain(self._weight.clone())


MAKERS: dict[str, Callable[[Tensor], Any]] = {
    "": Plain,
    "fp8": Fp8Weight.of,
    "int4": partial(GpuInt4Weight.of, group=GROUP),
}


def figures(card: GpuCard, options: LineOptions) -> Lines:
    sizes = sizes_of(SHAPE_8B)
    for kind, maker in MAKERS.items():
        layer = {name: _copies(maker, kind, *size) for name, size in sizes.items()}
        for tokens in TOKENS:
            took = {name: _took(weights, tokens, sizes[name][0]) for name, weights in layer.items()}
            num_bytes, speed = WEIGHT_BYTES[kind], PRODUCT_SPEED[kind]
            limit = sum(limit_s(card, tokens, *size, num_bytes, speed) for size in sizes.values())
            whole = sum(took.values())
            each = {f"{name}_us": round(one * 1e6, 1) for name, one in took.items()}
            found = {"us": round(whole * 1e6, 1), "of_limit": round(limit / whole, 3), **each}
            yield f"linears {kind or 'bf16'}, {tokens} token{'s' * (tokens > 1)}", found
        del layer
        torch.cuda.empty_cache()


def _copies(maker: Callable[[Tensor], Any], kind: str, num_in: int, num_out: int) -> list[Any]:
    """One is rounded, the others are its copies."""
    made = maker(torch.randn(num_out, num_in, device=DEVICE).mul_(0.02).to(torch.bfloat16))
    num = -(-MIN_BYTES // int(num_in * num_out * WEIGHT_BYTES[kind]))
    return [made, *(copied(made) for _ in range(num - 1))]


def copied(weight: Any) -> Any:
    if isinstance(weight, Plain):
        return weight.copy()
    tensors = {field.name: getattr(weight, field.name) for field in fields(weight)}
    return replace(weight, **{name: each.clone() for name, each in tensors.items() if isinstance(each, Tensor)})


def _took(weights: list[Any], tokens: int, num_in: int) -> float:
    x, turns = torch.randn(tokens, num_in, device=DEVICE).to(torch.bfloat16), cycle(weights)
    return seconds(lambda: next(turns).linear(x, None), 2 * len(weights))
