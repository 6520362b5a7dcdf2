"""Layers of experts on a CUDA device equal their oracle, wherever tokens go, and are replayed by a graph."""

import pytest
import torch

from ramet.kernels import grouped_linear, reference_experts

pytestmark = pytest.mark.gpu
NEAR = {torch.float16: 3e-3, torch.bfloat16: 2.5e-2}
SHAPES = [(8, 2, 512, 1024), (128, 8, 256, 192), (32, 4, 360, 240)]  # the last fills no tile


def routed(tokens: int, per_token: int, num_experts: int, seed: int) -> torch.Tensor:
    chance = torch.Generator("cuda").manual_seed(seed)
    return torch.rand(tokens, num_experts, generator=chance, device="cuda").topk(per_token).indices


@pytest.mark.parametrize("dtype", list(NEAR), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("tokens", [1, 33, 300, 4097])
def test_experts(tokens: int, shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    num, per_token, num_in, num_out = shape
    experts = routed(tokens, per_token, num, tokens)
    routes, meant = (each.sort_routes(experts, num) for each in (grouped_linear, reference_experts))
    assert torch.equal(routes.order, meant.order) and torch.equal(routes.ends, meant.ends)
    x = torch.randn(tokens, num_in, device="cuda", dtype=dtype)
    up = torch.randn(num, num_out, num_in, device="cuda", dtype=dtype) * num_in**-0.5
    down = torch.randn(num, num_in, num_out, device="cuda", dtype=dtype) * num_out**-0.5
    bias = torch.randn(num, num_out, device="cuda", dtype=dtype)
    ordered = grouped_linear.gather_linear(x, up, bias, routes)
    close = {"rtol": NEAR[dtype], "atol": NEAR[dtype]}
    torch.testing.assert_close(ordered, reference_experts.gather_linear(x, up, bias, routes), **close)
    spread = grouped_linear.scatter_linear(ordered, down, None, routes)
    torch.testing.assert_close(spread, reference_experts.scatter_linear(ordered, down, None, routes), **close)
    weights = torch.rand(tokens, per_token, device="cuda")
    found = grouped_linear.combine(spread, weights)
    torch.testing.assert_close(found, reference_experts.combine(spread, weights), **close)


def test_a_graph_replays_other_routes() -> None:
    num, per_token, num_in, num_out = SHAPES[0]
    experts, other = (routed(64, per_token, num, seed) for seed in (0, 1))
    x = torch.randn(64, num_in, device="cuda", dtype=torch.bfloat16)
    up = torch.randn(num, num_out, num_in, device="cuda", dtype=torch.bfloat16)

    def run() -> torch.Tensor:
        return grouped_linear.gather_linear(x, up, None, grouped_linear.sort_routes(experts, num))

    with torch.cuda.stream(torch.cuda.Stream()):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = run()
    experts.copy_(other)
    graph.replay()
    assert torch.equal(made, run())
