"""Products of experts on a GPU equal their oracle, in the interpreter, whatever goes where."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ramet.kernels import grouped_linear, reference_experts
from ramet.kernels.tuned import GROUPED, GroupedTuning, Processor, grouped_tuning

NEAR = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
SMALL = GroupedTuning(16, 32, 32, 4, 2)


def chance(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def routed(tokens: int, per_token: int, num_experts: int) -> Tensor:
    """[T, K], no expert twice for a token."""
    return torch.rand(tokens, num_experts, generator=chance(tokens)).topk(per_token).indices


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize(
    ("tokens", "per_token", "num_experts"), [(0, 2, 5), (1, 1, 1), (7, 2, 5), (129, 8, 128), (700, 2, 3)]
)
def test_routes_are_sorted_by_expert_in_their_own_order(
    tokens: int, per_token: int, num_experts: int, kind: torch.dtype
) -> None:
    experts = routed(tokens, per_token, num_experts).to(kind)
    found, meant = (each.sort_routes(experts, num_experts) for each in (grouped_linear, reference_experts))
    assert torch.equal(found.order, meant.order) and torch.equal(found.ends, meant.ends)
    assert found.num_tokens == tokens


@pytest.mark.parametrize("dtype", list(NEAR), ids=str)
@pytest.mark.parametrize(
    ("tokens", "per_token", "num_experts", "num_in", "num_out"),
    [(0, 2, 4, 32, 32), (1, 2, 8, 64, 64), (17, 2, 5, 96, 40), (40, 3, 4, 33, 70), (3, 4, 60, 64, 32)],
)
def test_experts_equal_their_oracle(
    tokens: int, per_token: int, num_experts: int, num_in: int, num_out: int, dtype: torch.dtype
) -> None:
    random = chance(num_in)
    experts = routed(tokens, per_token, num_experts)
    routes = grouped_linear.sort_routes(experts, num_experts)
    up = torch.randn(num_experts, num_out, num_in, generator=random).to(dtype)
    down = torch.randn(num_experts, num_in, num_out, generator=random).to(dtype)
    up_bias, down_bias = (torch.randn(num_experts, size, generator=random).to(dtype) for size in (num_out, num_in))
    x = torch.randn(tokens, num_in, generator=random).to(dtype)
    weights = torch.rand(tokens, per_token, generator=random)
    close = {"rtol": NEAR[dtype], "atol": 20 * NEAR[dtype]}
    for biased in (False, True):
        of_up, of_down = (up_bias, down_bias) if biased else (None, None)
        ordered = grouped_linear.gather_linear(x, up, of_up, routes, SMALL)
        torch.testing.assert_close(ordered, reference_experts.gather_linear(x, up, of_up, routes), **close)
        spread = grouped_linear.scatter_linear(ordered, down, of_down, routes, SMALL)
        torch.testing.assert_close(spread, reference_experts.scatter_linear(ordered, down, of_down, routes), **close)
        found = grouped_linear.combine(spread, weights)
        assert torch.equal(found, reference_experts.combine(spread, weights))


def test_the_oracle_is_a_sum_over_experts() -> None:
    """As a mixture is written down: of each token its experts' outputs, times how much it asks of each."""
    tokens, per_token, num_experts, num_in, num_out = 9, 2, 4, 24, 16
    random = chance(0)
    x = torch.randn(tokens, num_in, generator=random)
    weight = torch.randn(num_experts, num_out, num_in, generator=random)
    back = torch.randn(num_experts, num_in, num_out, generator=random)
    experts, weights = routed(tokens, per_token, num_experts), torch.rand(tokens, per_token, generator=random)
    routes = reference_experts.sort_routes(experts, num_experts)
    ordered = functional.silu(reference_experts.gather_linear(x, weight, None, routes))
    found = reference_experts.combine(reference_experts.scatter_linear(ordered, back, None, routes), weights)
    for token in range(tokens):
        meant = sum(
            weights[token, k] * (back[e] @ functional.silu(weight[e] @ x[token]))
            for k, e in enumerate(experts[token].tolist())
        )
        torch.testing.assert_close(found[token], meant, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("crowded", [False, True])
def test_every_tile_of_routes_is_computed_wherever_they_go(crowded: bool) -> None:
    """All to one expert, and one to each: the two ends of how many tiles there are."""
    num_experts = 20
    experts = torch.full((num_experts, 1), 3) if crowded else torch.arange(num_experts)[:, None]
    routes = grouped_linear.sort_routes(experts, num_experts)
    x = torch.randn(num_experts, 32, generator=chance(1))
    weight = torch.randn(num_experts, 48, 32, generator=chance(2))
    found = grouped_linear.gather_linear(x, weight, None, routes, SMALL)
    torch.testing.assert_close(found, reference_experts.gather_linear(x, weight, None, routes), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("processor", GROUPED, ids=lambda each: str(each.capability))
def test_more_tokens_of_an_expert_get_larger_tiles(processor: Processor) -> None:
    sizes = [grouped_tuning(tokens, processor).tokens for tokens in (0.1, 16, 17, 64, 65, 10_000)]
    assert sizes == sorted(sizes) and sizes[0] == 16 < sizes[-1]
