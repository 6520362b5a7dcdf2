"""Layers of experts in plain torch: the oracle of kernels/grouped_linear.py, with the same signatures.

Each token is routed to K of E experts. Its products with each of them are summed, weighted, in float32 (Shazeer 2017;
Mixtral, 2024). T tokens, P = T K routes of which route t K + k is token t's k-th, N in, M out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Routes:
    """Routes in the order of their experts, those of one expert in their own."""

    order: Tensor  # [P] int32, numbers of routes
    ends: Tensor  # [E] int32, of the P those of experts up to this one
    per_token: int

    @property
    def num_tokens(self) -> int:
        return len(self.order) // self.per_token


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
