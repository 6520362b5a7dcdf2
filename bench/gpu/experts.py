"""A layer of experts on a card, beside what its bytes and products allow and beside torch's grouped products.

A case's tokens are routed at random. Of the limit: experts that any token goes to are read once, and all products are
made at the rate of a large matrix product, whichever takes longer. Layers lie one behind the other in more memory than
the card's cache holds and are computed in turn.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle

import torch
from torch import Tensor
from torch.nn import functional

from ramet.bench.gpu.card import GpuCard, seconds
from ramet.bench.gpu.lines import LineOptions, Lines
from ramet.kernels import gpu_ops
from ramet.kernels.grouped_linear import combine, gather_linear, scatter_linear, sort_routes

MIN_BYTES = 1 << 29
TOKENS = (1, 32, 256, 4096)


@dataclass(frozen=True)
class ExpertShape:
    name: str
    num_experts: int
    per_token: int
    hidden: int
    intermediate: int

    @property
    def expert_bytes(self) -> int:
        return 3 * self.hidden * self.intermediate * 2

    def flops(self, tokens: int) -> int:
        return 6 * tokens * self.per_token * self.hidden * self.intermediate


MIXTRAL = ExpertShape("Mixtral 8x7B", 8, 2, 4096, 14336)
QWEN3 = ExpertShape("Qwen3 30B-A3B", 128, 8, 2048, 768)


class Layers:
    """Weights of a few layers, and tokens with their experts."""

    def __init__(self, shape: ExpertShape, tokens: int, min_bytes: int = MIN_BYTES, device: str = "cuda") -> None:
        chance = torch.Generator(device).manual_seed(tokens)

        def random(*size: int) -> Tensor:
            return torch.randn(*size, generator=chance, dtype=torch.float32, device=device).bfloat16()

        num, hidden, inner = shape.num_experts, shape.hidden, shape.intermediate
        layers = max(1, min(16, -(-min_bytes // (num * shape.expert_bytes))))
        self.shape, self.x = shape, random(tokens, hidden)
        self.layers = [(random(num, 2 * inner, hidden), random(num, hidden, inner)) for _ in range(layers)]
        wanted = torch.rand(tokens, num, generator=chance, device=device).topk(shape.per_token)
        self.weights, self.experts = wanted.values, wanted.indices

    def ours(self, gate_up: Tensor, down: Tensor) -> Tensor:
        routes = sort_routes(self.experts, self.shape.num_experts)
        inner = gpu_ops.silu_mul(gather_linear(self.x, gate_up, None, routes))
        return combine(scatter_linear(inner, down, None, routes), self.weights)

    def of_torch(self, gate_up: Tensor, down: Tensor) -> Tensor:
        """By functional.grouped_mm."""
        flat = self.experts.flatten()
        order = torch.sort(flat, stable=True).indices
        ends = torch.searchsorted(flat[order], torch.arange(len(gate_up), device=flat.device), right=True).int()
        inputs = self.x[order // self.shape.per_token]
        inner = gpu_ops.silu_mul(functional.grouped_mm(inputs, gate_up.transpose(1, 2), offs=ends))
        made = functional.grouped_mm(inner, down.transpose(1, 2), offs=ends)
        spread = torch.empty_like(made)
        spread[order] = made
        return (spread.view(*self.experts.shape, -1).float() * self.weights[..., None]).sum(1).to(self.x.dtype)

    def limit(self, card: GpuCard) -> float:
        """Seconds."""
        read = len(self.experts.unique()) * self.shape.expert_bytes / card.read_bytes_per_s
        return max(read, self.shape.flops(len(self.x)) / card.flops_per_s)


def figures(card: GpuCard, options: LineOptions) -> Lines:
    for shape in (MIXTRAL, QWEN3):
        for tokens in TOKENS:
            layers = Layers(shape, tokens)
            took = {}
            for name, run in (("ours", layers.ours), ("torch", layers.of_torch)):
                took[name] = seconds(partial(_computed, run, cycle(layers.layers)), 2 * len(layers.layers))
            found = {
                "us": round(took["ours"] * 1e6, 1),
                "torch_us": round(took["torch"] * 1e6, 1),
                "of_limit": round(layers.limit(card) / took["ours"], 3),
            }
            yield f"experts {shape.name}, {tokens} token{'s' * (tokens > 1)}", found
            del layers
            torch.cuda.empty_cache()


def _computed(run: Callable[[Tensor, Tensor], Tensor], turns: Iterator[tuple[Tensor, Tensor]]) -> Tensor:
    return run(*next(turns))
