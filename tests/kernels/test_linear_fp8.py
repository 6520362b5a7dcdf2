"""Linear layers in float8: rounded as torch rounds, products of what is rounded, and near the plain layer."""

import pytest
import torch
from torch.nn import functional

from ramet.kernels import gpu_ops
from ramet.kernels.linear_fp8 import Fp8Weight, round_rows
from ramet.kernels.reference import RopeTables

MOST = 448.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [1, 100, 1024])
def test_rows_are_rounded_as_torch_rounds(size: int, dtype: torch.dtype) -> None:
    x = torch.randn(7, size + 3, generator=torch.Generator().manual_seed(size)).to(dtype)[:, :size]  # strided
    x[2] = 0
    x[3] *= 1e4 if dtype is not torch.float16 else 10
    found, scales = round_rows(x)
    largest = x.float().abs().amax(1, keepdim=True)
    assert torch.equal(scales, torch.where(largest > 0, largest / MOST, 1.0))
    assert torch.equal(found.float(), (x.float() / scales).clamp(-MOST, MOST).to(torch.float8_e4m3fn).float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [1, 17, 100])
def test_products_are_those_of_what_is_rounded(tokens: int, dtype: torch.dtype) -> None:
    chance = torch.Generator().manual_seed(tokens)
    plain = (torch.randn(48, 192, generator=chance) * 0.05).to(dtype)
    x, bias = torch.randn(tokens, 192, generator=chance).to(dtype), torch.randn(48, generator=chance).to(dtype)
    weight = Fp8Weight.of(plain)
    inputs, scales = round_rows(x)
    every = torch.arange(48)
    meant = (inputs.float() * scales) @ (weight.rounded.float() * weight.scales).T + bias.float()
    for wide in (False, True):
        found = weight.linear(x, bias, wide)
        assert found.dtype == (torch.float32 if wide else dtype)
        torch.testing.assert_close(found.float(), meant, rtol=1.6e-2, atol=1.6e-2)
    exact = functional.linear(x.float(), plain.float(), bias.float())
    assert (weight.linear(x, bias).float() - exact).std() < 0.05 * exact.std()
    torch.testing.assert_close(weight.rows(every, 2.0).float(), 2 * plain.float(), rtol=0.07, atol=1e-3)


def test_sizes_that_tensor_cores_do_not_take_are_named() -> None:
    with pytest.raises(ValueError, match="a layer of 100 inputs and 48 outputs, which float8 products do not take"):
        Fp8Weight.of(torch.ones(48, 100))


def test_a_nan_stays_one_and_what_is_too_large_becomes_the_largest() -> None:
    x = torch.ones(3, 16)
    x[1], x[2, 3] = float("nan"), float("nan")
    rounded, _ = round_rows(x)
    assert rounded.float().isnan().tolist() == x.isnan().tolist()
    one = torch.tensor([float("nan"), 1e6, -1e6, 1.0])
    qkv = one.repeat(1, 3, 4)
    keys, values = (torch.zeros(2, 1, 16, dtype=torch.float8_e4m3fn) for _ in range(2))
    rope = RopeTables(torch.ones(1, 8), torch.zeros(1, 8))
    at = torch.tensor([0]), None, keys, values, torch.tensor([1])
    gpu_ops.norm_rope_store(qkv, 1, rope, *at)
    largest = torch.tensor([float("nan"), 448.0, -448.0, 1.0]).repeat(4)
    for cache in (keys, values):
        torch.testing.assert_close(cache[1, 0].float(), largest, equal_nan=True)


def test_no_tokens() -> None:
    assert Fp8Weight.of(torch.ones(16, 32)).linear(torch.ones(0, 32), None).shape == (0, 16)
