"""Layers of experts equal their oracle, whatever holds the weights: routes, products, sums, and the whole layer."""

from functools import partial
from typing import Any

import pytest
import torch
from compiled import compiled_kernels
from recording_device import CUDA, recording_device
from torch import Tensor
from torch.nn import functional

from ramet.kernels import gpu_ops, reference
from ramet.kernels.reference_experts import SIGMOID, RouteRule, route
from ramet.runtime.engine.devices.cuda_graphs import CudaCapture
from ramet.runtime.layers.experts import Experts, ExpertsShape
from ramet.runtime.layers.modules import GatedMLP, Linear, pack_linears
from ramet.runtime.weights.packing import packer_of

HIDDEN, INTERMEDIATE, SHARED = 64, 96, 40
CLOSE = {torch.float32: 2e-5, torch.bfloat16: 2**-5, torch.float16: 2**-6}  # 16 bits are rounded three times on the way
RULES = [RouteRule(2, True), RouteRule(3, False), RouteRule(1, False)]


def randn(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    "rule",
    [
        *RULES, RouteRule(8, True), RouteRule(2, True, SIGMOID, scale=2.5), RouteRule(3, False, SIGMOID, 4, 2, 1.5),
        RouteRule(1, True, SIGMOID, 8, 1), RouteRule(2, False, groups=2), RouteRule(3, True, sharpness=0.3),
    ],
)  # fmt: skip
@pytest.mark.parametrize("tokens", [1, 33])
def test_routes_are_those_of_the_oracle(rule: RouteRule, tokens: int, biased: bool) -> None:
    logits = randn(tokens, 8, seed=tokens)
    bias = randn(8, seed=5) * 0.3 if biased and rule.scores == SIGMOID else None
    of_experts = randn(8, seed=6).abs() if biased else None
    experts, weights = compiled_kernels().route(logits, rule, bias, of_experts)
    wanted, probabilities = route(logits, rule, bias, of_experts)
    assert torch.equal(experts, wanted)
    torch.testing.assert_close(weights, probabilities, rtol=1e-5, atol=1e-7)


def test_of_equals_the_lower_number_comes_first() -> None:
    logits = torch.tensor([[1.0, 2.0, 2.0, 1.0, 2.0], [0.0] * 5])
    for kernels in (compiled_kernels(), reference):
        experts, weights = kernels.route(logits, RouteRule(4, True))
        assert experts.tolist() == [[1, 2, 4, 0], [0, 1, 2, 3]]
        torch.testing.assert_close(weights.sum(1), torch.ones(2))


def test_of_scores_that_are_no_numbers_experts_are_chosen_that_there_are() -> None:
    logits = torch.tensor([[float("nan")] * 5, [1.0, float("nan"), 3.0, 2.0, 0.0]])
    experts, _ = compiled_kernels().route(logits, RouteRule(3, True))
    assert all(len(set(row)) == 3 and set(row) <= set(range(5)) for row in experts.tolist())


def made(
    ops: Any, rule: RouteRule, num: int, dtype: torch.dtype, shared: bool, gate: bool = True, clamped: bool = False
) -> Experts:
    options: dict[str, Any] = dict(dtype=dtype, ops=ops)
    shared_mlp = GatedMLP(HIDDEN, SHARED, bias=False, activation="silu", **options) if shared else None
    activation = partial(ops.clamped_mul, alpha=1.7, limit=0.5) if clamped else ops.silu_mul
    of = ExpertsShape(num, INTERMEDIATE, rule, shared_gate=shared and gate, bias=clamped)
    layer = Experts(HIDDEN, of, shared_mlp, activation, dtype, ops)
    for i, (_, parameter) in enumerate(layer.named_parameters()):
        parameter.data.copy_(randn(*parameter.shape, seed=i) * (2.0 if len(parameter) == num else 0.15))
    return layer


def plainly(layer: Experts, x: Tensor) -> Tensor:
    """Token by token, in float64."""

    def mlp(gate_up: Linear, down: Linear, token: Tensor) -> Tensor:
        assert gate_up.weight is not None and down.weight is not None
        gate, up = (gate_up.weight.double() @ token).chunk(2)
        return down.weight.double() @ (functional.silu(gate) * up)

    out = torch.zeros(x.shape, dtype=torch.float64)
    assert layer.router.weight is not None
    for t, token in enumerate(x.double()):
        scores = torch.softmax(layer.router.weight.double() @ token, 0)
        values, chosen = scores.topk(layer._rule.per_token)
        values = values / values.sum() if layer._rule.normalise else values
        first, second = list(layer.gate_up), list(layer.down)
        for value, expert in zip(values, chosen.tolist(), strict=True):
            out[t] += value * mlp(first[expert], second[expert], token)
        if layer.shared is not None:
            part: Any = 1.0
            if layer.shared_gate is not None and layer.shared_gate.weight is not None:
                part = torch.sigmoid(layer.shared_gate.weight.double() @ token)
            out[t] += part * mlp(layer.shared.gate_up, layer.shared.down, token)
    return out


@pytest.mark.parametrize("dtype", CLOSE)
def test_biased_experts_with_clamped_gates(dtype: torch.dtype) -> None:
    ops, rule = compiled_kernels(), RouteRule(2, True)
    x = randn(70, HIDDEN, seed=1, dtype=dtype)
    with torch.inference_mode():
        layers = [made(each, rule, 6, dtype, shared=False, clamped=True) for each in (reference, ops)]
        pack_linears(layers[1], packer_of("plain", 128, ops), packer_of("plain", 128, ops))
        expected, found = (layer(x).double() for layer in layers)
        tokens, router = x.double(), layers[0].router
        assert router.weight is not None and router.bias is not None
        scores = tokens @ router.weight.double().T + router.bias.double()
        chosen = scores.topk(2)
        wanted = torch.zeros_like(expected)
        for t, (values, experts) in enumerate(zip(chosen.values.softmax(-1), chosen.indices.tolist(), strict=True)):
            for value, expert in zip(values, experts, strict=True):
                first, second = list(layers[0].gate_up)[expert], list(layers[0].down)[expert]
                gate, up = affine(first, tokens[t]).chunk(2)
                gate, up = gate.clamp(max=0.5), up.clamp(-0.5, 0.5)
                wanted[t] += value * affine(second, gate * torch.sigmoid(1.7 * gate) * (up + 1))
    for each in (expected, found):
        torch.testing.assert_close(each, wanted, rtol=CLOSE[dtype], atol=CLOSE[dtype])


def affine(linear: Linear, token: Tensor) -> Tensor:
    assert linear.weight is not None and linear.bias is not None
    return linear.weight.double() @ token + linear.bias.double()


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize(("shared", "gate"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("rule", RULES)
def test_a_layer_sums_what_its_experts_say(rule: RouteRule, shared: bool, gate: bool, dtype: torch.dtype) -> None:
    ops = compiled_kernels()
    for tokens in (1, 5, 70):
        x = randn(tokens, HIDDEN, seed=tokens, dtype=dtype)
        with torch.inference_mode():
            layer = made(reference, rule, 6, dtype, shared, gate)
            wanted = plainly(layer, x)
            torch.testing.assert_close(layer(x).double(), wanted, rtol=CLOSE[dtype], atol=CLOSE[dtype])
            layer = made(ops, rule, 6, dtype, shared, gate)
            pack_linears(layer, packer_of("plain", 128, ops), packer_of("plain", 128, ops))
            torch.testing.assert_close(layer(x).double(), wanted, rtol=CLOSE[dtype], atol=CLOSE[dtype])


@pytest.mark.parametrize("form", ["int8", "int8wo", "int4"])
def test_experts_of_fewer_bits_are_those_of_the_oracle_and_the_router_keeps_its_own(form: str) -> None:
    ops, x = compiled_kernels(), randn(9, HIDDEN, seed=1)
    outputs = []
    for kernels in (ops, reference):
        layer = made(kernels, RouteRule(2, True), 5, torch.float32, shared=True)
        with torch.inference_mode():
            logits = layer.router.wide(x)
            pack_linears(layer, packer_of(form, 32, kernels), packer_of("plain", 32, kernels))
            torch.testing.assert_close(layer.router.wide(x), logits, rtol=1e-5, atol=1e-5)
            outputs.append(layer(x))
    torch.testing.assert_close(outputs[0], outputs[1], rtol=1e-4, atol=1e-4)


def test_a_token_gets_the_same_from_its_experts_in_any_batch() -> None:
    ops = compiled_kernels()
    layer, x = made(ops, RouteRule(2, True), 5, torch.float32, shared=True), randn(40, HIDDEN, seed=3)
    with torch.inference_mode():
        pack_linears(layer, packer_of("plain", 32, ops), packer_of("plain", 32, ops))
        whole = layer(x)
        for start, stop in ((0, 1), (7, 9), (10, 40)):
            assert torch.equal(layer(x[start:stop]), whole[start:stop])


def test_a_list_of_calls_serves_any_routing() -> None:
    """As a step is replayed: what is listed for one batch computes another one that lies in its place."""
    ops = compiled_kernels()
    layer, x = made(ops, RouteRule(2, True), 5, torch.float32, shared=False), randn(8, HIDDEN, seed=3)
    with torch.inference_mode():
        pack_linears(layer, packer_of("plain", 32, ops), packer_of("plain", 32, ops))
        layer(x)
        with ops.deferred():
            out = layer(x)
            x.copy_(randn(8, HIDDEN, seed=4))
        assert torch.equal(out, layer(x))


def test_a_graph_serves_any_routing() -> None:
    xs, rule = [randn(9, HIDDEN, seed=seed) for seed in (3, 4)], RouteRule(2, True)
    with torch.inference_mode():
        wanted = [made(reference, rule, 5, torch.float32, shared=True)(x) for x in xs]
        with pytest.MonkeyPatch.context() as monkeypatch, recording_device(monkeypatch):
            layer = made(gpu_ops, rule, 5, torch.float32, shared=True)
            for module in layer.modules():
                for name, parameter in list(module.named_parameters(recurse=False)):
                    setattr(module, name, torch.nn.Parameter(parameter.data.to(CUDA), requires_grad=False))
            for experts in (layer.gate_up, layer.down):
                experts.stack()
            x, capture = torch.zeros(9, HIDDEN).to(CUDA), CudaCapture()
            capture.warm(lambda: layer(x))
            graph, out = capture.graph(lambda: layer(x))
            for each, expected in zip(xs, wanted, strict=True):
                x.copy_(each.to(CUDA))
                graph.replay()
                torch.testing.assert_close(out.cpu(), expected, rtol=1e-5, atol=1e-5)


def test_kernels_of_a_gpu_sum_what_the_oracle_does() -> None:
    x = randn(13, HIDDEN, seed=3)
    with torch.inference_mode():
        wanted = made(reference, RouteRule(2, True), 5, torch.float32, shared=True)(x)
        layer = made(gpu_ops, RouteRule(2, True), 5, torch.float32, shared=True)
        for experts in (layer.gate_up, layer.down):
            experts.stack()
        assert layer.gate_up.stacked is not None
        torch.testing.assert_close(layer(x), wanted, rtol=1e-5, atol=1e-5)
