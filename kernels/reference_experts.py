"""Layers of experts in plain torch: the oracle of kernels/grouped_linear.py and kernels/cpu/experts.py.

Each token is routed to K of E experts. Its products with each of them are summed, weighted, in float32 (Shazeer 2017;
Mixtral, 2024). T tokens, P = T K routes of which route t K + k is token t's k-th, N in, M out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

SOFTMAX, SIGMOID = "softmax", "sigmoid"
Gated = Callable[[Tensor], Tensor]  # [T, 2 F] -> [T, F]


class Projection(Protocol):
    """A linear layer of one expert: plain, or packed for the kernels of its device."""

    @property
    def bias(self) -> Tensor | None:
        """[M]"""

    @property
    def packed(self) -> Any:
        """None where the weight is plain."""

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, N] -> [T, M]"""


class Projections(Protocol):
    """One linear layer of each expert."""

    def __iter__(self) -> Iterator[Projection]: ...

    @property
    def stacked(self) -> Tensor | None:
        """[E, M, N], whose parts are the plain weights; None: they are packed, or each has memory of its own."""

    @property
    def stacked_bias(self) -> Tensor | None:
        """[E, M], whose parts are the biases, if there are some."""


class Mixture(Protocol):
    """The experts of a layer."""

    def __call__(
        self, x: Tensor, experts: Tensor, weights: Tensor, shared: Tensor | None = None, gates: Tensor | None = None
    ) -> Tensor:
        """x [T, N], routed to experts [T, K] int32 with weights [T, K] float32 -> [T, N].

        shared [T, N] is added, times the sigmoid of gates [T, 1] float32 if these are given.
        """


@dataclass(frozen=True, slots=True)
class RouteRule:
    """How a router's scores [E] become K experts and their weights."""

    per_token: int
    normalise: bool  # weights are divided by their sum
    scores: str = SOFTMAX  # or SIGMOID, of each expert for itself
    groups: int = 1  # of experts, of which those are left out whose best ones are not among the best
    kept_groups: int = 1
    scale: float = 1.0  # of weights
    sharpness: float = 1.0  # of logits, which are multiplied by it
    of_group: int = 2  # best ones of a group, by whose sum it is judged


@dataclass(frozen=True, slots=True)
class Routes:
    """Routes in the order of their experts, those of one expert in their own."""

    order: Tensor  # [P] int32, numbers of routes
    ends: Tensor  # [E] int32, of the P those of experts up to this one
    per_token: int

    @property
    def num_tokens(self) -> int:
        return len(self.order) // self.per_token


def route(
    logits: Tensor, rule: RouteRule, bias: Tensor | None = None, of_experts: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """logits [T, E] float32 -> experts [T, K] int32, the best scores first, and their weights [T, K] float32.

    Probabilities are of all experts; of equals the lower number comes first. bias [E] float32 decides with the scores
    which experts are chosen, and is no part of their weights (DeepSeek-V3, 2024). of_experts [E] float32 is what each
    expert's weight is multiplied by (Gemma 4).
    """
    logits = logits * rule.sharpness
    scores = torch.sigmoid(logits) if rule.scores == SIGMOID else torch.softmax(logits, dim=-1)
    choice = scores if bias is None else scores + bias
    if rule.groups > 1:
        choice = choice.masked_fill(~_kept(choice, rule), float("-inf"))
    experts = choice.sort(dim=-1, descending=True, stable=True).indices[:, : rule.per_token]
    values = scores.gather(1, experts)
    if rule.normalise:
        values = values / (values.sum(dim=-1, keepdim=True) + 1e-20)
    values = values * rule.scale
    if of_experts is not None:
        values = values * of_experts[experts]
    return experts.int().contiguous(), values.contiguous()


def _kept(choice: Tensor, rule: RouteRule) -> Tensor:
    """[T, E]: experts of the groups whose best ones have the largest sums."""
    of_groups = choice.unflatten(1, (rule.groups, -1))
    sums = of_groups.topk(min(rule.of_group, of_groups.shape[2]), dim=-1).values.sum(dim=-1)
    order = sums.sort(dim=-1, descending=True, stable=True).indices[:, : rule.kept_groups]
    kept = torch.zeros_like(sums, dtype=torch.bool).scatter(1, order, True)
    return kept.repeat_interleave(of_groups.shape[2], dim=1)


def store_routes(experts: Tensor, slots: Tensor, table: Tensor) -> None:
    """experts [T, K] int32 and slots [T] int64 of their tokens. WRITES these rows of table [S, K] int32."""
    table.index_copy_(0, slots, experts)


def mixture(gate_up: Projections, activation: Gated, down: Projections) -> Mixture:
    """Expert by expert, whatever form their weights have."""
    first, second = list(gate_up), list(down)

    def mixed(
        x: Tensor, experts: Tensor, weights: Tensor, shared: Tensor | None = None, gates: Tensor | None = None
    ) -> Tensor:
        routes, flat = x.new_empty((experts.numel(), x.shape[1])), experts.flatten()
        for expert in flat.unique().tolist():
            own = (flat == expert).nonzero().flatten()
            inputs = activation(first[expert](x[own // experts.shape[1]]))
            routes[own] = second[expert](inputs)
        return joined(combine(routes.view(*experts.shape, x.shape[1]), weights), shared, gates)

    return mixed


def joined(x: Tensor, shared: Tensor | None, gates: Tensor | None) -> Tensor:
    """What `Mixture` says of these."""
    if shared is None:
        return x
    return x + (shared if gates is None else (torch.sigmoid(gates) * shared.float()).to(x.dtype))


def sort_routes(experts: Tensor, num_experts: int) -> Routes:
    """experts [T, K], whole numbers below num_experts."""
    flat = experts.flatten()
    order = torch.sort(flat, stable=True).indices
    counts = (flat[None] == torch.arange(num_experts, device=flat.device)[:, None]).sum(1)
    return Routes(order.int(), counts.cumsum(0).int(), experts.shape[1])


def gather_linear(x: Tensor, weight: Tensor, bias: Tensor | None, routes: Routes) -> Tensor:
    """Each token with its experts. x [T, N], weight [E, M, N], bias [E, M] -> [P, M], as routes are ordered."""
    return _linear(x[routes.order.long() // routes.per_token], weight, bias, routes)


def scatter_linear(x: Tensor, weight: Tensor, bias: Tensor | None, routes: Routes) -> Tensor:
    """Each route with its expert. x [P, N] as routes are ordered, weight [E, M, N], bias [E, M] -> [T, K, M]"""
    ordered = _linear(x, weight, bias, routes)
    out = torch.empty_like(ordered)
    out[routes.order.long()] = ordered
    return out.view(routes.num_tokens, routes.per_token, weight.shape[1])


def combine(x: Tensor, weights: Tensor) -> Tensor:
    """x [T, K, M], weights [T, K] -> [T, M], summed in float32 from the first expert on."""
    total = torch.zeros(x.shape[0], x.shape[2], dtype=torch.float32, device=x.device)
    for k in range(x.shape[1]):
        total += x[:, k].float() * weights[:, k, None].float()
    return total.to(x.dtype)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None, routes: Routes) -> Tensor:
    out = torch.empty((len(x), weight.shape[1]), dtype=x.dtype, device=x.device)
    start = 0
    for expert, end in enumerate(routes.ends.tolist()):
        of_expert = None if bias is None else bias[expert]
        out[start:end] = functional.linear(x[start:end], weight[expert], of_expert)
        start = end
    return out
