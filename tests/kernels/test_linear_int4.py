"""Linear layers of 4-bit weights for GPUs equal their dequantised form, in the interpreter, for every layout."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ramet.kernels.int4_words import AWQ_OUTPUTS, Int4Words, WordLayout
from ramet.kernels.linear_int4 import MANY, GpuInt4Weight
from ramet.kernels.reference_weights import Int4Weight

NEAR = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def words_of(layout: WordLayout, whole: Tensor) -> Tensor:
    """whole [M, N] as a checkpoint of the layout has them."""
    wide = whole.to(torch.int64).T  # [N, M]
    if layout is WordLayout.GPTQ:
        eight = wide.reshape(-1, 8, wide.shape[1])
        packed = sum(eight[:, i] << 4 * i for i in range(8))
    else:
        eight = wide.reshape(len(wide), -1, 8)
        packed = sum(eight[..., output] << 4 * i for i, output in enumerate(AWQ_OUTPUTS))
    return torch.where(packed < 1 << 31, packed, packed - (1 << 32)).to(torch.int32)


def checkpoint(
    layout: WordLayout, num_out: int, num_in: int, group: int, dtype: torch.dtype, ordered: bool = False
) -> tuple[Int4Words, Tensor]:
    """Words, and what they mean in float32 [M, N]."""
    chance = torch.Generator().manual_seed(num_out + num_in)
    whole = torch.randint(0, 16, (num_out, num_in), generator=chance)
    scales = (torch.rand(num_in // group, num_out, generator=chance) * 0.02 + 0.001).half()
    zeros = torch.randint(0, 16, scales.shape, generator=chance).half()
    order = torch.randperm(num_in, generator=chance).int() if ordered else None
    of_input = torch.arange(num_in) // group
    if order is not None:
        of_input = torch.empty(num_in, dtype=torch.int64).index_copy_(0, order.long(), of_input)
    exact = (whole.float() - zeros.T.float()[:, of_input]) * scales.T.float()[:, of_input]
    return Int4Words(layout, words_of(layout, whole), scales, zeros, order, dtype), exact


@pytest.mark.parametrize("dtype", list(NEAR), ids=str)
@pytest.mark.parametrize("layout", WordLayout, ids=str)
@pytest.mark.parametrize(("num_out", "num_in", "group"), [(72, 128, 128), (136, 192, 64), (8, 96, 32)])
@pytest.mark.parametrize("ordered", [False, True])
def test_what_a_checkpoint_has(
    num_out: int, num_in: int, group: int, layout: WordLayout, ordered: bool, dtype: torch.dtype
) -> None:
    source, exact = checkpoint(layout, num_out, num_in, group, dtype, ordered)
    weight = GpuInt4Weight.of_words(source)
    chance = torch.Generator().manual_seed(1)
    bias = torch.randn(num_out, generator=chance).to(dtype)
    for tokens in (1, 17, MANY + 1):
        x = torch.randn(tokens, num_in + 8, generator=chance).to(dtype)[:, :num_in]  # strided
        expected = functional.linear(x.float(), exact.to(dtype).float(), bias.float())
        for wide in (False, True):
            found = weight.linear(x, bias, wide)
            assert found.dtype == (torch.float32 if wide else dtype)
            torch.testing.assert_close(found.float(), expected, rtol=NEAR[dtype], atol=NEAR[dtype])
        torch.testing.assert_close(
            weight.linear(x, None).float(), expected - bias.float(), rtol=NEAR[dtype], atol=2 * NEAR[dtype]
        )
    at = torch.tensor([num_out - 1, 0, 3])
    torch.testing.assert_close(weight.rows(at, 2.0), (exact[at] * 2).to(dtype))


def test_weights_that_are_rounded_here_are_rounded_as_the_oracle_does() -> None:
    weight = torch.randn(40, 256, generator=torch.Generator().manual_seed(2))
    ours, oracle = GpuInt4Weight.of(weight, 64), Int4Weight.of(weight, 64)
    every = torch.arange(40)
    assert torch.equal(ours.rows(every), oracle.rows(every)) and torch.equal(ours.widened(), oracle.rows(every))
    assert (ours.widened() - weight).abs().max() < 0.25


def test_no_tokens() -> None:
    assert GpuInt4Weight.of(torch.ones(8, 32), 32).linear(torch.ones(0, 32), None).shape == (0, 8)
