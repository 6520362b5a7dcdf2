"""A mixture of gated MLPs, to which a router sends each token.

Decides which experts there are and that their router is not rounded to fewer bits; how tokens get to them is the ops'
(Shazeer et al. 2017). T tokens, N in and out, E experts.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from ramet.kernels.reference_experts import Gated, Mixture, RouteRule
from ramet.runtime.layers.modules import Linear
from ramet.runtime.layers.ops import Ops


@dataclass(frozen=True, slots=True)
class Clamp:
    """Bounds of gate and up before they are multiplied: see `clamped_mul` of kernels/reference.py."""

    alpha: float
    limit: float


@dataclass(frozen=True, slots=True)
class ExpertsShape:
    """The experts of a layer that has them in the place of one MLP."""

    num: int
    intermediate: int  # of each
    rule: RouteRule
    shared_intermediate: int = 0  # of the one that every token has; 0: there is none
    shared_gate: bool = False  # how much of that one a token takes is learnt
    choice_bias: bool = False  # what decides with the scores which experts are chosen is learnt
    bias: bool = False  # of the router and of both linear layers of each
    clamp: Clamp | None = None  # None: their activation is the model's
    beside: bool = False  # of the layer's one MLP, and not in its place

    @property
    def num_of_a_token(self) -> int:
        """Intermediate numbers."""
        return self.rule.per_token * self.intermediate + self.shared_intermediate


class ExpertLinears(nn.Module):
    """One linear layer of each expert. On a GPU plain weights are parts of one tensor, which one kernel reads."""

    def __init__(
        self, num: int, num_in: int, num_out: int, dtype: torch.dtype, bias: bool = False, may_round: bool = True
    ) -> None:
        super().__init__()
        options: Any = dict(bias=bias, dtype=dtype, may_round=may_round)
        self.layers = nn.ModuleList(Linear(num_in, num_out, **options) for _ in range(num))
        self._stacked: Tensor | None = None
        self._stacked_bias: Tensor | None = None
        first = next(iter(self)).weight
        if first is not None and first.is_cuda:
            self.stack()

    def stack(self) -> None:
        """Weights that are plain, and biases, with what they hold."""
        self._stacked = torch.stack([layer.weight for layer in self if layer.weight is not None])
        for layer, part in zip(self, self._stacked, strict=True):
            layer.weight = nn.Parameter(part, requires_grad=False)
        biases: list[Tensor] = [layer.bias for layer in self if layer.bias is not None]
        if biases:
            self._stacked_bias = torch.stack(biases)
            for layer, part in zip(self, self._stacked_bias, strict=True):
                layer.bias = nn.Parameter(part, requires_grad=False)

    def __iter__(self) -> Iterator[Linear]:
        return iter(cast(Iterable[Linear], self.layers))

    @property
    def stacked(self) -> Tensor | None:
        """[E, M, N]; None where weights are packed, or have memory of their own."""
        return self._stacked if all(layer.weight is not None for layer in self) else None

    @property
    def stacked_bias(self) -> Tensor | None:
        """[E, M]; None where there are none, or each has memory of its own."""
        return self._stacked_bias


class ChoiceBias(nn.Module):
    """What decides with the router's scores which experts are chosen: float32 whatever the model's dtype."""

    def __init__(self, num: int) -> None:
        super().__init__()
        self.e_score_correction_bias = nn.Parameter(torch.empty(num, dtype=torch.float32), requires_grad=False)


class ExpertScales(nn.Module):
    """What each expert's weight is multiplied by: float32 whatever the model's dtype."""

    def __init__(self, num: int) -> None:
        super().__init__()
        self.per_expert_scale = nn.Parameter(torch.empty(num, dtype=torch.float32), requires_grad=False)


class Experts(nn.Module):
    """x [T, N] -> [T, N]. `shared` is for every token, `shared_gate` [1, N] says how much of it."""

    def __init__(
        self, size: int, of: ExpertsShape, shared: nn.Module | None, activation: Gated, dtype: torch.dtype, ops: Ops
    ) -> None:
        super().__init__()
        self.router = Linear(size, of.num, bias=of.bias, dtype=dtype, may_round=False)
        self.gate_up = ExpertLinears(of.num, size, 2 * of.intermediate, dtype, of.bias)
        self.down = ExpertLinears(of.num, of.intermediate, size, dtype, of.bias)
        self.choice = ChoiceBias(of.num) if of.choice_bias else None
        self.scales = ExpertScales(of.num) if of.beside else None
        self.shared = shared
        self.shared_gate = Linear(size, 1, bias=False, dtype=dtype, may_round=False) if of.shared_gate else None
        self._rule, self._activation, self._ops = of.rule, activation, ops
        self._mixture: Mixture | None = None  # once the weights are in
        self.on_routes: Callable[[Tensor], None] | None = None  # takes the experts [T, K] int32 of every forward pass

    def forward(self, x: Tensor, routed_by: Tensor | None = None) -> Tensor:
        """`routed_by` [T, N]: what the router reads; None: x."""
        if self._mixture is None:
            self._mixture = self._ops.mixture(self.gate_up, self._activation, self.down)
        bias = None if self.choice is None else self.choice.e_score_correction_bias
        scales = None if self.scales is None else self.scales.per_expert_scale
        logits = self.router.wide(x if routed_by is None else routed_by)
        experts, weights = self._ops.route(logits, self._rule, bias, scales)
        if self.on_routes is not None:
            self.on_routes(experts)
        shared = None if self.shared is None else self.shared(x)
        gates = None if self.shared_gate is None else self.shared_gate.wide(x)
        return self._mixture(x, experts, weights, shared, gates)
