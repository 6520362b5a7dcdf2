"""4-bit weights: the kernel equals its oracle, and what a checkpoint says is what is packed."""

from dataclasses import replace

import pytest
import torch
from compiled import compiled_kernels
from torch import Tensor

from ramet.kernels.cpu.tape import TapeReplay
from ramet.kernels.cpu.weights import pack_int4, repack_int4
from ramet.kernels.int4_words import Int4Words, WordLayout, awq_columns, columns, group_of
from ramet.kernels.reference_weights import Int4Weight

CLOSE = {torch.float32: (1e-5, 1e-5), torch.float16: (2**-10, 2**-8), torch.bfloat16: (2**-7, 2**-4)}
SHAPES = ((128, 80), (384, 1), (256, 65), (512, 100))  # in, out


def filled(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def whole_numbers(shape: tuple[int, ...], seed: int = 3) -> Tensor:
    return torch.randint(0, 16, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def words_of(eights: Tensor) -> Tensor:
    """[..., 8] whole numbers, the lowest bits first -> [...] int32"""
    shifted = eights.long() << torch.arange(0, 32, 4)
    return shifted.sum(-1).to(torch.int32)  # wraps


def source(
    layout: WordLayout, num_out: int, num_in: int, group: int, *, ordered: bool = False
) -> tuple[Int4Words, Tensor]:
    """Words as a checkpoint has them, and the weight [M, N] that they mean."""
    wholes, groups = whole_numbers((num_out, num_in)), num_in // group
    scales = (filled((groups, num_out), torch.float32, 5).abs() / 50 + 0.001).half()
    zeros = whole_numbers((groups, num_out), 6).half() + 1
    shuffled = torch.randperm(num_in, generator=torch.Generator().manual_seed(7))
    order = shuffled.int() if ordered else None
    group_of_input = torch.empty(num_in, dtype=torch.int64)
    group_of_input[shuffled if ordered else torch.arange(num_in)] = torch.arange(num_in) // group
    weight = (wholes.float() - zeros.T.float()[:, group_of_input]) * scales.T.float()[:, group_of_input]
    if layout is WordLayout.AWQ:
        words = words_of(wholes.T.reshape(num_in, -1, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]])
    else:
        words = words_of(wholes.T.reshape(-1, 8, num_out).transpose(1, 2))
    return Int4Words(layout, words.contiguous(), scales, zeros, order, torch.float32), weight


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 12, 13, 64, 129])
def test_int4_equals_its_oracle(tokens: int, group: int, dtype: torch.dtype) -> None:
    """Sums of a group are exact, so only those of groups and the last rounding may differ."""
    ops = compiled_kernels()
    for num, (num_in, num_out) in enumerate(SHAPES):
        weight, bias = filled((num_out, num_in), dtype), filled((num_out,), dtype, 3) if num % 2 else None
        weight[:, :group] = 0
        weight[0] = weight[0].abs()
        x = filled((tokens, num_in + 5), dtype, 2)[:, 2 : num_in + 2]
        x[0] = 0
        packed, oracle, every = pack_int4(ops, weight, group), Int4Weight.of(weight, group), torch.arange(num_out)
        assert torch.equal(packed.rows(every), oracle.rows(every))
        assert torch.equal(packed.rows(every[-1:], 2.0), oracle.rows(every[-1:], 2.0))
        ours, theirs = packed.linear(x, bias, wide=True), oracle.linear(x, bias, wide=True)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
        rtol, atol = CLOSE[dtype]
        torch.testing.assert_close(packed.linear(x, bias), oracle.linear(x, bias), rtol=rtol, atol=atol)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("layout", WordLayout)
@pytest.mark.parametrize(("num_in", "num_out", "group"), [(128, 8, 128), (384, 72, 64), (96, 104, 32)])
def test_words_of_a_checkpoint_are_packed_as_they_are(
    num_in: int, num_out: int, group: int, layout: WordLayout, ordered: bool
) -> None:
    ops, (words, weight) = compiled_kernels(), source(layout, num_out, num_in, group, ordered=ordered)
    packed, oracle, every = repack_int4(ops, words), Int4Weight.of_words(words), torch.arange(num_out)
    assert torch.equal(packed.rows(every), weight) and torch.equal(oracle.rows(every), weight)
    for tokens in (1, 5, 30):
        x = filled((tokens, num_in), torch.float32, 2)
        torch.testing.assert_close(packed.linear(x, None), oracle.linear(x, None), rtol=1e-5, atol=1e-4)
        wanted = x @ weight.T
        assert (packed.linear(x, None) - wanted).norm() / wanted.norm() < 0.03


def test_a_token_gets_the_same_output_in_any_batch() -> None:
    words, _ = source(WordLayout.GPTQ, 104, 256, 64, ordered=True)
    packed, x = repack_int4(compiled_kernels(), words), filled((150, 256), torch.float32, 2)
    whole = packed.linear(x, None)
    for start, stop in ((0, 1), (3, 9), (10, 22), (100, 150)):
        assert torch.equal(packed.linear(x[start:stop], None), whole[start:stop])


def test_one_thread_computes_what_several_do() -> None:
    ops, alone = compiled_kernels(), type(compiled_kernels())(compiled_kernels().library, 1)
    weight, x = filled((300, 128), torch.bfloat16), filled((40, 128), torch.bfloat16, 2)
    packed = pack_int4(ops, weight, 128)
    assert torch.equal(replace(packed, ops=alone).linear(x, None), packed.linear(x, None))
    assert torch.equal(pack_int4(alone, weight, 128).packed, packed.packed)


def test_a_tape_multiplies_again() -> None:
    ops = compiled_kernels()
    weights = [repack_int4(ops, source(WordLayout.GPTQ, 40, 64, 32, ordered=ordered)[0]) for ordered in (False, True)]
    x, ids = filled((2, 64), torch.float32), torch.tensor([1, 2])
    with ops.recorded() as tape:
        outputs = [made for weight in weights for made in (weight.linear(x, None), weight.rows(ids))]
    x.mul_(2), ids.add_(3)
    again = TapeReplay(ops.library, [tape], 1)
    again.begin()
    wanted = [made for weight in weights for made in (weight.linear(x, None), weight.rows(ids))]
    assert all(torch.equal(one, other) for one, other in zip(outputs, wanted, strict=True))


def test_words_are_unpacked_in_their_order() -> None:
    word = torch.tensor([[0x76543210]], dtype=torch.int32)
    assert columns(word).tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert awq_columns(word).tolist() == [[0, 4, 1, 5, 2, 6, 3, 7]]
    assert columns(torch.tensor([[-1]], dtype=torch.int32)).tolist() == [[15] * 8]


def test_the_largest_group_that_divides_the_inputs() -> None:
    assert [group_of(n) for n in (768, 704, 96, 33, 8)] == [128, 64, 32, None, None]
    assert group_of(768, 64) == 64
