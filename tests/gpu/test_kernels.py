"""Every Triton kernel equals its oracle on a CUDA device, in the types that models have."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from attention_cases import Case
from delta_cases import NEAR as NEAR_OF_STATES
from delta_cases import column, layer

from ramet.kernels import gpu_ops, reference
from ramet.kernels.decode_attention import MIN_CHUNK, SPLITS
from ramet.kernels.delta_net import delta_net
from ramet.kernels.linear_fp8 import Fp8Weight, round_rows
from ramet.kernels.linear_int4 import GpuInt4Weight
from ramet.kernels.reference_delta import DeltaShape, DeltaStates, DeltaWeights, PlacedRows, StateRows
from ramet.kernels.reference_weights import Int4Weight
from ramet.kernels.tuned import ExtendTuning, decode_tuning

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")
NEAR = {torch.float32: 5e-5, torch.float16: 3e-3, torch.bfloat16: 2.5e-2}
RULES: list[dict[str, Any]] = [{}, {"window": 100}, {"softcap": 5.0}, {"window": 300, "softcap": 20.0}]
SHAPES = [(32, 8, 128), (14, 2, 64), (8, 8, 80), (8, 1, 256), (4, 2, 16)]
CASES = [*product(SHAPES, RULES, [torch.bfloat16]), *product(SHAPES[:2], RULES[::3], [torch.float16, torch.float32])]


def near(found: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = NEAR[expected.dtype]
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("shape", "rule", "dtype"), CASES, ids=str)
def test_decode(shape: tuple[int, int, int], rule: dict[str, Any], dtype: torch.dtype) -> None:
    rows = [
        (0, 1),
        (126, 1),
        (128, 1),
        (MIN_CHUNK - 1, 1),
        (MIN_CHUNK, 1),
        (700, 1),
        (4096, 1),
        (MIN_CHUNK * SPLITS, 1),
    ]
    placed = Case(rows * 4, *shape, dtype, size=2.0, **rule).on(CUDA)
    near(placed.decoded(), placed.expected())


@pytest.mark.parametrize(("shape", "rule", "dtype"), CASES, ids=str)
def test_extend(shape: tuple[int, int, int], rule: dict[str, Any], dtype: torch.dtype) -> None:
    rows = [(0, 1), (127, 2), (129, 33), (0, 70), (64, 64), (300, 1), (2000, 500), (0, 1000)]
    placed = Case(rows, *shape, dtype, size=2.0, **rule).on(CUDA)
    near(placed.extended(), placed.expected())


@pytest.mark.parametrize("extras", [{}, {"sinks": True}, {"softcap": 5.0}, {"cache": torch.float8_e4m3fn}], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_that_share_a_prefix(shape: tuple[int, int, int], extras: dict[str, Any]) -> None:
    """Rows of more than 4,096 tokens have chunks of 512, so the whole chunks of what they share are half as many."""
    rows = [(3000 + 40 * i, 1) for i in range(70)] + [(10, 1), (600, 1), (5000, 1)] * 3
    placed = Case(rows, *shape, torch.bfloat16, shared=2600, size=2.0, **extras).on(CUDA)
    near(placed.decoded(shares=True), placed.expected())
    chunks = [MIN_CHUNK if length <= MIN_CHUNK * SPLITS else 2 * MIN_CHUNK for length in placed.lengths[:70]]
    assert {*chunks} == {256, 512}
    assert placed.scratch.shared.shared[:70].sum(1).tolist() == [2600 // chunk for chunk in chunks]


@pytest.mark.parametrize("extras", [{"sinks": True}, {"cache": torch.float8_e4m3fn}], ids=str)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_sinks_and_keys_of_8_bits(rule: dict[str, Any], extras: dict[str, Any]) -> None:
    placed = Case([(0, 1), (126, 1), (700, 1), (4096, 1)], 32, 8, 128, torch.bfloat16, **extras, **rule).on(CUDA)
    near(placed.decoded(), placed.expected())
    placed = Case([(0, 1), (127, 2), (2000, 500), (0, 1000)], 32, 8, 128, torch.bfloat16, **extras, **rule).on(CUDA)
    near(placed.extended(), placed.expected())


@pytest.mark.parametrize("extras", [{}, {"sinks": True, "window": 300}], ids=str)
def test_heads_of_512_numbers_and_tiles_that_programs_share(extras: dict[str, Any]) -> None:
    placed = Case([(0, 1), (126, 1), (700, 1), (4096, 1)], 16, 2, 512, torch.bfloat16, **extras).on(CUDA)
    near(placed.decoded(), placed.expected())
    placed = Case([(0, 1), (127, 2), (2000, 500), (0, 1000)], 16, 2, 512, torch.bfloat16, **extras).on(CUDA)
    for parts in (1, 8):
        near(placed.extended(parts=parts), placed.expected())


@pytest.mark.parametrize("page", [16, 64])
def test_pages(page: int) -> None:
    placed = Case([(1000, 1), (5, 1)], dtype=torch.bfloat16, page=page).on(CUDA)
    near(placed.decoded(), placed.expected())
    placed = Case([(1000, 40), (5, 7)], dtype=torch.bfloat16, page=page).on(CUDA)
    near(placed.extended(), placed.expected())


def test_what_a_row_gets_depends_on_no_other_row_and_on_no_grid() -> None:
    """A hundred times: a missing barrier between the chunks of a row would show as a number that changes."""
    rows = [(3000, 1), (5, 1), (513, 1), (255, 1)] * 40
    placed = Case(rows, 32, 8, 128, torch.bfloat16).on(CUDA)
    once = placed.decoded()
    for per_processor in (1, 2, 3, 4) * 25:
        tuning = replace(decode_tuning(128), per_processor=per_processor)
        assert torch.equal(placed.decoded(tuning), once)


@pytest.mark.parametrize("queries", [32, 64, 128])
def test_tiles_of_other_sizes(queries: int) -> None:
    placed = Case([(1000, 300), (0, 90)], 32, 8, 128, torch.bfloat16).on(CUDA)
    near(placed.extended(ExtendTuning(queries, 64, 4, 2)), placed.expected())


@pytest.mark.parametrize("dtype", list(NEAR), ids=str)
def test_small_ops(dtype: torch.dtype) -> None:
    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype).to(CUDA)

    for size in (64, 80, 4096, 8192):
        x, ours = random(33, size), random(33, size)
        theirs = ours.clone()
        for weight in (random(size), random(size).float()):
            near(gpu_ops.rms_norm(x, weight, 1e-6), reference.rms_norm(x, weight, 1e-6))
            found = gpu_ops.add_rms_norm(x, ours, weight, 1e-6)
            near(found, reference.add_rms_norm(x, theirs, weight, 1e-6))
            assert torch.equal(ours, theirs)
    gate_up = random(33, 2 * 14336) * 3
    near(gpu_ops.silu_mul(gate_up), reference.silu_mul(gate_up))
    near(gpu_ops.clamped_mul(gate_up, 1.702, 7.0), reference.clamped_mul(gate_up, 1.702, 7.0))
    for tanh in (False, True):
        near(gpu_ops.gelu_mul(gate_up, tanh), reference.gelu_mul(gate_up, tanh))
    angles, positions = torch.rand(100, 64, device=CUDA), torch.arange(33, device=CUDA) * 3
    slots = torch.randperm(50, device=CUDA)[:33]
    for norms in (None, reference.HeadNorms(random(128), random(128), 1e-6)):
        pools = [torch.zeros(50, 8, 128, dtype=dtype, device=CUDA) for _ in range(4)]
        qkv = random(33, 48, 128)
        expected, turns = qkv.clone(), (reference.RopeTables(angles.cos(), angles.sin()), positions, norms)
        gpu_ops.norm_rope_store(qkv, 32, *turns, *pools[:2], slots)
        reference.norm_rope_store(expected, 32, *turns, *pools[2:], slots)
        near(qkv, expected)
        near(pools[0], pools[2])
        assert torch.equal(pools[1], pools[3])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("group", [32, 64, 128])
def test_linear_layers_of_4_bits(group: int, dtype: torch.dtype) -> None:
    chance = torch.Generator().manual_seed(group)
    plain = (torch.randn(1096, 4096, generator=chance) * 0.02).to(dtype)
    weight = GpuInt4Weight.of(plain.to(CUDA), group)
    meant = Int4Weight.of(plain, group).rows(torch.arange(1096)).to(CUDA)
    assert torch.equal(weight.widened(), meant)
    for tokens in (1, 16, 17, 33, 64, 65, 300):
        x = torch.randn(tokens, 4096, generator=chance).to(dtype).to(CUDA)
        near(weight.linear(x, None), (x.float() @ meant.float().T).to(dtype))


@pytest.mark.parametrize("tokens", [1, 17, 300])
def test_linear_layers_in_float8(tokens: int) -> None:
    chance = torch.Generator().manual_seed(tokens)
    plain = (torch.randn(1024, 4096, generator=chance) * 0.02).to(torch.bfloat16).to(CUDA)
    x = torch.randn(tokens, 4096, generator=chance).to(torch.bfloat16).to(CUDA)
    weight, (inputs, scales) = Fp8Weight.of(plain), round_rows(x)
    expected = torch.where(scales > 0, x.float() / scales, 0).clamp(-448, 448).to(torch.float8_e4m3fn)
    assert (inputs.float() == expected.float()).float().mean() > 0.999  # where a division is rounded otherwise
    meant = (inputs.float() * scales) @ (weight.rounded.float() * weight.scales).T
    near(weight.linear(x, None), meant.to(torch.bfloat16))


@pytest.mark.parametrize("dtype", list(NEAR), ids=str)
@pytest.mark.parametrize(("key", "value"), [(128, 128), (64, 96), (256, 40)])
@pytest.mark.parametrize("shared", [1, 2, 4])
def test_layers_with_states(shared: int, key: int, value: int, dtype: torch.dtype) -> None:
    """Rows of 1, 5, 0 and 300 tokens, some with snapshots; then the first two decode, beside padding, in a graph."""
    of = DeltaShape(key_heads=4, value_heads=4 * shared, key=key, value=value, taps=4)
    case = layer(of, dtype, 306)
    oracle = case.copied()
    weights = DeltaWeights(
        *(getattr(case.weights, name).to(CUDA) for name in ("conv", "a_log", "dt_bias", "norm")), 1e-6
    )
    states = DeltaStates(case.states.last.to(CUDA), case.states.matrix.to(CUDA))
    x, gates = case.x.to(CUDA), case.gates.to(CUDA)
    saves = [np.array(each, np.int32) for each in ([[0], [2], [0], [299]], [[0], [6], [0], [7]])]
    at = StateRows(column(3, 1, 0, 5), column(1, 5, 0, 300), column(9, 5, 0, 300), *saves)

    def same(found: torch.Tensor, expected: torch.Tensor) -> None:
        tolerance = 3 * NEAR_OF_STATES[dtype]
        scale = max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(found.cpu().float(), expected.float(), rtol=10 * tolerance, atol=tolerance * scale)

    same(
        delta_net(x, gates, of, weights, states, at),
        reference.delta_net(oracle.x, oracle.gates, of, oracle.weights, oracle.states, at),
    )
    rows, lens = (torch.tensor(numbers, dtype=torch.int32, device=CUDA) for numbers in ([0] * 4, [1] * 4))
    placed = replace(StateRows(*[column(0, 0, 0, 0)] * 3), placed=PlacedRows.decoding(rows, lens))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = delta_net(x[:4], gates[:4], of, weights, states, placed)
    rows.copy_(torch.tensor([3, 1, 0, 0]))
    lens.copy_(torch.tensor([10, 6, 1, 1]))
    graph.replay()
    decode = StateRows(column(3, 1), column(1, 1), column(10, 6))
    same(made[:2], reference.delta_net(oracle.x[:2], oracle.gates[:2], of, oracle.weights, oracle.states, decode))
    same(states.matrix[1:], oracle.states.matrix[1:])
    assert torch.equal(states.last[1:].cpu(), oracle.states.last[1:])
