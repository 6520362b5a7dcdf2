"""On a CPU no token, state or logits of another row change a row by a bit, not even NaN, which times 0 is NaN.

Attention is in tests/runtime/attention/test_rows_are_apart.py, adapters in test_adapters.py. Each class of CPU that the
machine is of runs all of them (test_built.py).
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from compiled import KERNELS, compiled_kernels
from delta_cases import column, layer
from torch import Tensor

from ramet.kernels import reference
from ramet.kernels.cpu.declarations import native
from ramet.kernels.cpu.ops import CpuOps
from ramet.kernels.cpu.weights import pack, pack_int4, pack_int8
from ramet.kernels.draw_params import DrawParams
from ramet.kernels.reference_delta import DeltaShape, StateRows
from ramet.kernels.reference_experts import SIGMOID, RouteRule
from ramet.runtime.engine.devices.cpu_kernels import machine, use
from ramet.runtime.layers.experts import ExpertLinears, Experts, ExpertsShape
from ramet.runtime.layers.modules import pack_linears
from ramet.runtime.weights.packing import packer_of

pytestmark = pytest.mark.usefixtures("two_threads")

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
NUMBERS = [math.nan, math.inf, -3e38]  # the last is a number, whose products and squares are none
SIZES = [(2, 1), (5, 0), (13, 12), (33, 7), (130, 64)]  # tokens, and which of them is poisoned
Op = Callable[[Tensor], Tensor]  # x [T, N] -> [T, ...]


def randn(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_apart(op: Op, x: Tensor, row: int, number: float, *, reaches_own: bool = True) -> None:
    """`reaches_own`: what comes of the poisoned row says that it is."""
    others = torch.arange(len(x)) != row
    outs = []
    for each in (0.5, number):
        poisoned = x.clone()
        poisoned[row] = each
        outs.append(op(poisoned))
    clean, dirty = outs
    assert not clean.isnan().any() and torch.equal(clean[others], dirty[others])
    assert not reaches_own or not dirty[row].isfinite().all()


def written(op: Callable[[Tensor], object]) -> Op:
    """Of an op that writes into its input."""

    def made(x: Tensor) -> Tensor:
        own = x.clone()
        op(own)
        return own

    return made


def small_ops(kernels: Any, size: int, dtype: torch.dtype) -> dict[str, Op]:
    weight, half, angles = randn(size, seed=1, dtype=dtype), size // 2, randn(200, 8, seed=2)

    def with_residual(x: Tensor) -> Tensor:
        residual = x * 2
        return torch.cat([kernels.add_rms_norm(x, residual, weight, 1e-5), residual], dim=1)

    return {
        "rms_norm": lambda x: kernels.rms_norm(x, weight, 1e-5),
        "add_rms_norm": with_residual,
        "norm_heads": written(lambda x: kernels.norm_heads(x.view(len(x), -1, 16), weight[:16].contiguous(), 1e-5)),
        "silu_mul": kernels.silu_mul,
        "gelu_mul": lambda x: kernels.gelu_mul(x, True),
        "gelu_by": lambda x: kernels.gelu_by(x[:, :half], x[:, half:], False),
        "clamped_mul": lambda x: kernels.clamped_mul(x, 1.7, 7.0),
        "add_scaled": written(lambda x: kernels.add_scaled(x, x.clone(), torch.tensor([3.0]))),
        "sigmoid_mul": lambda x: kernels.sigmoid_mul(x, x),
        "rotate": written(
            lambda x: kernels.rotate(x.view(len(x), -1, 16), angles.cos(), angles.sin(), torch.arange(len(x)))
        ),
    }


SMALL = list(small_ops(reference, 48, torch.float32))


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("name", SMALL)
def test_small_ops(name: str, kernels: Any, number: float) -> None:
    for dtype in DTYPES:
        for tokens, row in SIZES[1:4]:
            op = small_ops(kernels, 48, dtype)[name]
            assert_apart(op, randn(tokens, 48, seed=3, dtype=dtype), row, number, reaches_own=math.isnan(number))


@pytest.fixture
def ops() -> Iterator[CpuOps]:
    """Whose arithmetic is the machine's again afterwards."""
    made = compiled_kernels()
    yield made
    use(made.library, machine(made.library, made.threads))


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("arithmetic", range(3))  # as linear.cpp numbers them; what the CPU does not have is float32
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layers(dtype: torch.dtype, arithmetic: int, number: float, ops: CpuOps) -> None:
    native(ops.library, "choose_linear")(arithmetic, arithmetic, 0)
    for num_in, num_out in ((96, 80), (33, 65), (130, 100)):
        packed, bias = pack(ops, randn(num_out, num_in, seed=1, dtype=dtype)), randn(num_out, seed=2, dtype=dtype)
        for tokens, row in SIZES:
            for wide in (False, True):
                op = partial(packed.linear, bias=bias, wide=wide)
                assert_apart(op, randn(tokens, num_in, seed=3, dtype=dtype), row, number)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("form", ["int8", "int8wo", "int4"])
def test_layers_of_few_bits(form: str, number: float) -> None:
    kernels = compiled_kernels()
    for dtype in DTYPES:
        weight = randn(80, 128, seed=1, dtype=dtype)
        packed = (
            pack_int4(kernels, weight, 64)
            if form == "int4"
            else pack_int8(kernels, weight, weight_only=form == "int8wo")
        )
        for tokens, row in SIZES:
            x = randn(tokens, 128, seed=3, dtype=dtype)
            assert_apart(partial(packed.linear, bias=None), x, row, number, reaches_own=number != -3e38)


RULES = [RouteRule(2, True), RouteRule(3, False, SIGMOID, 4, 2, 1.5)]


def experts_of(kernels: Any, rule: RouteRule, dtype: torch.dtype) -> Experts:
    experts = Experts(64, ExpertsShape(8, 96, rule), None, kernels.silu_mul, dtype, kernels)
    for i, parameter in enumerate(experts.parameters()):
        parameter.data.copy_(randn(*parameter.shape, seed=i) * 0.2)
    return experts


@pytest.mark.parametrize("number", [math.nan, math.inf])
@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("arithmetic", range(3))
def test_layers_of_experts(arithmetic: int, rule: RouteRule, number: float, ops: CpuOps) -> None:
    """The poisoned token may go to other experts than before, so other tokens have other neighbours there."""
    native(ops.library, "choose_linear")(arithmetic, arithmetic, 0)
    for dtype in DTYPES:
        experts = experts_of(ops, rule, dtype)
        with torch.inference_mode():
            pack_linears(experts, packer_of("plain", 128, ops), packer_of("plain", 128, ops))
            for tokens, row in SIZES:
                assert_apart(experts, randn(tokens, 64, seed=3, dtype=dtype), row, number)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_experts_of_the_reference_keep_nan_to_its_token(rule: RouteRule) -> None:
    """How torch rounds a product depends on the number of its rows, and so on where the poisoned token goes."""
    experts = experts_of(reference, rule, torch.float32)
    x = randn(33, 64, seed=3)
    with torch.inference_mode():
        clean = experts(x)
        x[7] = math.nan
        dirty = experts(x)
    assert dirty[7].isnan().all()
    torch.testing.assert_close(clean[torch.arange(33) != 7], dirty[torch.arange(33) != 7], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("number", NUMBERS)
def test_layers_of_heads(number: float) -> None:
    kernels = compiled_kernels()
    for dtype in DTYPES:
        heads = ExpertLinears(3, 20, 33, dtype)
        for i, parameter in enumerate(heads.parameters()):
            parameter.data.copy_(randn(*parameter.shape, seed=i))
        with torch.inference_mode():
            pack_linears(heads, packer_of("plain", 128, kernels), None)
            for tokens, row in SIZES:
                x = randn(tokens, 60, seed=3, dtype=dtype)
                assert_apart(lambda x, of=heads: kernels.of_heads(of, x.view(len(x), 3, 20)), x, row, number)


DELTAS = [
    DeltaShape(key_heads=1, value_heads=2, key=24, value=37, taps=2),
    DeltaShape(key_heads=2, value_heads=4, key=16, value=16, taps=4),
]


@pytest.mark.parametrize("number", [math.nan, math.inf])
@pytest.mark.parametrize(("of", "dtype"), [(each, dtype) for each in DELTAS for dtype in DTYPES], ids=str)
@pytest.mark.parametrize("kernels", KERNELS)
def test_layers_with_a_state(kernels: Any, of: DeltaShape, dtype: torch.dtype, number: float) -> None:
    """Rows of 1, 5, 40 and 2 tokens, of which that of 5 is poisoned, as is every place that none of the others has."""
    num, own = column(1, 5, 40, 2), slice(1, 6)
    saves = np.array([[0], [3], [17], [0]], np.int32), np.array([[0], [6], [8], [0]], np.int32)
    at = StateRows(column(3, 1, 5, 2), num, num + column(8, 3, 0, 38), *saves)
    outs, places = [], [2, 3, 5, 8]
    for each in (0.5, number):
        made = layer(of, dtype, 48)
        made.x[own], made.gates[own] = each, each
        for states in (made.states.last, made.states.matrix):
            others = torch.ones(len(states), dtype=torch.bool)
            others[places] = False
            states[others] = each
        out = kernels.delta_net(made.x, made.gates, of, made.weights, made.states, at)
        outs.append((out, made.states.last[places], made.states.matrix[places]))
    clean, dirty = outs
    others = torch.ones(48, dtype=torch.bool)
    others[own] = False
    assert torch.equal(clean[0][others], dirty[0][others]) and not dirty[0][own].isfinite().all()
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(clean[1:], dirty[1:], strict=True))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kernels", KERNELS)
def test_what_is_drawn(kernels: Any, number: float) -> None:
    """A row with NaN or without any number says so; the others draw and score what they would without it."""
    num, vocabulary, row = 9, 300, 4
    others, every = torch.arange(num) != row, torch.arange(num, dtype=torch.int32)
    found = []
    for each in (0.5, number):
        logits = randn(num, vocabulary, seed=1) * 4
        logits[row] = each
        counts = torch.randint(0, 3, (num, vocabulary), generator=torch.Generator().manual_seed(2)).to(torch.uint8)
        seen = torch.full((num, -(-vocabulary // 32)), 0x5A5A, dtype=torch.int32)
        columns = (torch.full((num,), value) for value in (0.5, 0.3, 1.2))
        kernels.penalise(logits, every, every, *columns, counts, seen)
        kernels.softcap(logits, 30.0)
        allowed = torch.full((num, -(-vocabulary // 32)), -2, dtype=torch.int32)
        kernels.mask(logits, every, allowed)
        temperature = torch.linspace(0, 1.5, num)
        cuts = torch.tensor([0, 5, 0] * 3), torch.tensor([1, 0.9, 0.5] * 3), torch.tensor([0, 0, 0.1] * 3)
        tokens, finite = kernels.draw(logits, DrawParams(temperature, *cuts, torch.arange(num)), torch.arange(num))
        best, sums, top = kernels.normalise(logits, torch.arange(num), temperature.clamp_min(1), 3)
        found.append((logits[others], tokens[others], finite[others], best[others], sums[others], top[others]))
        if each != 0.5 and not math.isinf(number):
            assert not finite[row]
        assert finite[others].all()
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*found, strict=True))


@pytest.mark.parametrize("number", [math.nan, math.inf])
@pytest.mark.parametrize("cache", ["own", "int8"])
@pytest.mark.parametrize("kernels", KERNELS)
def test_keys_that_are_stored(kernels: Any, cache: str, number: float) -> None:
    for dtype, (tokens, row) in [(dtype, size) for dtype in DTYPES for size in SIZES[:4]]:
        slots = torch.randperm(40, generator=torch.Generator().manual_seed(1))[:tokens]
        (kind, width), pools = (torch.int8, 36) if cache == "int8" else (dtype, 32), []
        for each in (0.5, number):
            k = randn(tokens, 2, 32, seed=2, dtype=dtype)
            k[row] = each
            keys, values = torch.zeros(40, 2, width, dtype=kind), torch.zeros(40, 2, width, dtype=kind)
            kernels.store_kv(k, -k, keys, values, slots)
            pools.append((keys, values))
        kept = torch.ones(40, dtype=torch.bool)
        kept[slots[row]] = False
        for clean, dirty in zip(*pools, strict=True):
            assert torch.equal(clean[kept], dirty[kept])
