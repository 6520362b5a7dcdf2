"""The small ops for GPUs equal the oracle, in the interpreter: bit for bit where only rounding is in question."""

import pytest
import torch
from torch import Tensor

from ramet.kernels import gpu_ops, reference
from ramet.kernels.step_rows import StepColumns, take_in

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
ULPS = {torch.float32: 5e-7, torch.bfloat16: 2**-7, torch.float16: 2**-10}  # one rounding, relative


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def rope_of(angles: Tensor) -> reference.RopeTables:
    return reference.RopeTables(angles.cos(), angles.sin())


def near(found: Tensor, expected: Tensor, equal: float = 0.9) -> None:
    """Nowhere further than one rounding, and mostly the same."""
    torch.testing.assert_close(found, expected, rtol=2 * ULPS[expected.dtype], atol=1e-6)
    if expected.dtype != torch.float32:
        assert (found == expected).float().mean() >= equal


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("size", [1, 64, 80, 4097])
def test_norms(size: int, wide: bool, dtype: torch.dtype) -> None:
    x, weight = random(3, size + 8, dtype=dtype)[:, :size], random(size, dtype=torch.float32 if wide else dtype)
    near(gpu_ops.rms_norm(x, weight, 1e-6), reference.rms_norm(x, weight, 1e-6))
    ours, theirs = random(3, size, dtype=dtype, seed=1), random(3, size, dtype=dtype, seed=1)
    found = gpu_ops.add_rms_norm(x, ours, weight, 1e-6)
    near(found, reference.add_rms_norm(x, theirs, weight, 1e-6))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_activations(dtype: torch.dtype) -> None:
    gate_up = torch.cat((random(3, 2600, dtype=dtype) * 4, torch.tensor([[3e4, -3e4] * 1300] * 3).to(dtype)))
    near(gpu_ops.silu_mul(gate_up[:3]), reference.silu_mul(gate_up[:3]))
    near(gpu_ops.clamped_mul(gate_up, 1.702, 7.0), reference.clamped_mul(gate_up, 1.702, 7.0))
    for tanh in (False, True):
        found, expected = gpu_ops.gelu_mul(gate_up[:3], tanh), reference.gelu_mul(gate_up[:3], tanh)
        torch.testing.assert_close(found, expected, rtol=4 * ULPS[dtype], atol=1e-5 if dtype == torch.float32 else 1e-3)
    for found in (gpu_ops.silu_mul(gate_up), gpu_ops.gelu_mul(gate_up, True)):
        assert not torch.isnan(found).any()


def test_a_cap_of_logits() -> None:
    x = torch.cat((random(3, 700) * 50, torch.tensor([[1e30, -1e30] * 350])))
    expected = x.clone()
    gpu_ops.softcap(x, 30.0)
    reference.softcap(expected, 30.0)
    torch.testing.assert_close(x, expected, rtol=1e-6, atol=2e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("head_dim", "half"), [(64, 32), (80, 20), (256, 128), (16, 1)])
@pytest.mark.parametrize("normed", [None, False, True], ids=["plain", "normed", "normed in float32"])
def test_from_a_projection_to_the_pool(normed: bool | None, head_dim: int, half: int, dtype: torch.dtype) -> None:
    """11 query, 2 key and 2 value heads."""
    qkv = random(5, 15, head_dim, dtype=dtype)
    expected, rope = qkv.clone(), rope_of(random(50, half))
    weights = (random(head_dim, dtype=torch.float32 if normed else dtype, seed=seed) for seed in range(2))
    norms = None if normed is None else reference.HeadNorms(*weights, 1e-6)
    pools = [torch.zeros(9, 2, head_dim, dtype=dtype) for _ in range(4)]
    at = torch.tensor([3, 1, 0, 49, 7]), norms
    slots = torch.tensor([8, 2, 5, 1, 0])
    gpu_ops.norm_rope_store(qkv, 11, rope, *at, *pools[:2], slots)
    reference.norm_rope_store(expected, 11, rope, *at, *pools[2:], slots)
    near(qkv, expected)
    assert torch.equal(qkv[:, 13:], expected[:, 13:]), "values are as they were"
    assert torch.equal(pools[0][slots], qkv[:, 11:13]) and torch.equal(pools[1][slots], qkv[:, 13:])
    for pool in pools[:2]:
        assert not pool[[3, 4, 6, 7]].any(), "other slots are as they were"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("head_dim", "half"), [(64, 32), (80, 20)])
@pytest.mark.parametrize("kv_heads", [2, 0])
def test_values_that_are_normed_and_layers_without_keys(
    kv_heads: int, head_dim: int, half: int, dtype: torch.dtype
) -> None:
    qkv = random(5, 3 + 2 * kv_heads, head_dim, dtype=dtype)
    expected, rope = qkv.clone(), rope_of(random(50, half))
    norms = reference.HeadNorms(random(head_dim, dtype=dtype), random(head_dim, dtype=dtype, seed=1), 1e-6, True)
    pools = [torch.zeros(9, 2, head_dim, dtype=dtype)[:, :kv_heads] for _ in range(4)]
    at, slots = torch.tensor([3, 1, 0, 49, 7]), torch.tensor([8, 2, 5, 1, 0])
    gpu_ops.norm_rope_store(qkv, 3, rope, at, norms, *pools[:2], slots)
    reference.norm_rope_store(expected, 3, rope, at, norms, *pools[2:], slots)
    near(qkv, expected)
    for found, meant in zip(pools[:2], pools[2:], strict=True):
        if kv_heads:
            near(found, meant)


def test_a_pool_of_whole_numbers_is_filled_by_the_reference() -> None:
    qkv, rope = random(3, 8, 16), rope_of(random(9, 8))
    pools = [torch.zeros(4, 2, 20, dtype=torch.int8) for _ in range(4)]
    both = qkv.clone(), qkv
    for op, found, of in zip((gpu_ops, reference), both, (pools[:2], pools[2:]), strict=True):
        op.norm_rope_store(found, 4, rope, torch.tensor([1, 2, 8]), None, *of, torch.tensor([3, 1, 2]))
    assert torch.equal(*both) and torch.equal(pools[0], pools[2]) and torch.equal(pools[1], pools[3])
    assert pools[0].any()


def test_nothing_comes_of_no_tokens() -> None:
    assert gpu_ops.rms_norm(torch.zeros(0, 8), torch.ones(8), 1e-6).shape == (0, 8)
    assert gpu_ops.silu_mul(torch.zeros(0, 8)).shape == (0, 4)


def test_rows_of_a_prepared_step_take_in_what_changed() -> None:
    def ints(*numbers: int) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int32)

    rows, relayed, seq_lens, shifts = ints(3, 1, 0), ints(1, 0, 0), ints(9, 5, 1), ints(2, 0, 0)
    next_ids, lengths, table = ints(0, 10, 20, 30), ints(7, 7, 7, 7), torch.zeros(4, 10, dtype=torch.int32)
    ids, positions, slots, shifted = (torch.tensor(x) for x in ([99, 55, 0], [99, 4, 0], [71, 72, 0], [0, 0, 0]))
    take_in(StepColumns(rows, relayed, seq_lens, shifts, slots), next_ids, lengths, ids, positions, shifted, table)
    assert ids.tolist() == [30, 55, 0] and positions.tolist() == [6, 4, 0] and shifted.tolist() == [4, 4, 0]
    assert lengths.tolist() == [1, 5, 7, 7]
    assert table[3].tolist() == [0, 0, 0, 0, 0, 0, 71, 0, 0, 0] and table[1, 4] == 72
