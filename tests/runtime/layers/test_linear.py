"""A packed weight computes what the plain one does, and the plain one is gone."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
import torch
from compiled import compiled_kernels
from torch import Tensor

from ramet.kernels.cpu.declarations import native
from ramet.kernels.cpu.ops import CpuOps
from ramet.kernels.cpu.weights import pack, pack_int8
from ramet.kernels.reference_weights import Int8Weight
from ramet.runtime.engine.devices.cpu_kernels import machine, use
from ramet.runtime.layers.modules import Embedding, Linear, pack_linears

ARITHMETICS = range(3)  # over bfloat16, as linear.cpp numbers them
CLOSE = {torch.float32: (1e-5, 1e-5), torch.float16: (2**-10, 2**-8), torch.bfloat16: (2**-7, 2**-4)}


def filled(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def fill(layer: torch.nn.Module) -> None:
    for name, parameter in layer.named_parameters():
        parameter.data.copy_(filled(tuple(parameter.shape), parameter.dtype, len(name)))


@pytest.fixture
def ops() -> Iterator[CpuOps]:
    """Whose arithmetic is the machine's again afterwards."""
    made = compiled_kernels()
    yield made
    use(made.library, machine(made.library, made.threads))


def compute_in(ops: CpuOps, few: int, many: int, at: int) -> None:
    native(ops.library, "choose_linear")(few, many, at)


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 12, 13, 64, 129])
def test_packed_equals_plain(tokens: int, bias: bool, dtype: torch.dtype, arithmetic: int, ops: CpuOps) -> None:
    """What the CPU does not have is float32."""
    compute_in(ops, arithmetic, arithmetic, 0)
    for num_in, num_out in ((96, 80), (33, 1), (1, 65), (130, 100)):
        layer = Linear(num_in, num_out, bias=bias, dtype=dtype)
        fill(layer)
        x = filled((tokens, num_in + 5), dtype, 2)[:, 2 : num_in + 2]
        with torch.inference_mode():
            wanted = torch.nn.functional.linear(
                x.double(), layer.weight.double(), layer.bias.double() if bias else None
            )
            pack_linears(layer, partial(pack, ops), partial(pack, ops))
            rtol, atol = CLOSE[dtype]
            torch.testing.assert_close(layer(x).double(), wanted, rtol=rtol, atol=atol)
        assert layer.weight is None


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("dtype", CLOSE)
def test_a_token_gets_the_same_output_in_any_batch(dtype: torch.dtype, arithmetic: int, ops: CpuOps) -> None:
    compute_in(ops, arithmetic, arithmetic, 0)
    packed = pack(ops, filled((100, 70), dtype))
    x = filled((150, 70), dtype, 2)
    whole = packed.linear(x, None)
    for start, stop in ((0, 1), (3, 9), (10, 22), (100, 150)):
        assert torch.equal(packed.linear(x[start:stop], None), whole[start:stop])


@pytest.mark.parametrize("at", [0, 4])
def test_the_arithmetic_of_many_tokens_begins_where_it_was_chosen(at: int, ops: CpuOps) -> None:
    packed, x = pack(ops, filled((64, 512), torch.bfloat16)), filled((5, 512), torch.bfloat16, 2)

    def outputs(*choice: int) -> list[Tensor]:
        compute_in(ops, *choice)
        return [packed.linear(x[:tokens], None, wide=True) for tokens in (3, 4, 5)]

    floats, others = outputs(0, 0, 0), outputs(1, 1, 0)
    wanted = [others[i] if at and tokens >= at else floats[i] for i, tokens in enumerate((3, 4, 5))]
    assert all(torch.equal(found, want) for found, want in zip(outputs(0, 1, at), wanted, strict=True))


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("tied", [True, False])
def test_an_embedding_reads_the_rows_it_was_given(tied: bool, dtype: torch.dtype) -> None:
    ops = compiled_kernels()
    layer = Embedding(70, 33, scale=2.0, tied=tied, dtype=dtype, ops=ops)
    fill(layer)
    ids, x = torch.tensor([0, 69, 31, 32, 32]), filled((3, 33), dtype, 2)
    with torch.inference_mode():
        plain, scores = layer(ids), layer.wide(x)
        pack_linears(layer, partial(pack, ops), partial(pack, ops))
        assert torch.equal(layer(ids), plain) and (layer.weight is None) == tied
        torch.testing.assert_close(layer.wide(x), scores, rtol=CLOSE[dtype][0], atol=CLOSE[dtype][1])


def test_one_thread_computes_what_several_do() -> None:
    ops, alone = compiled_kernels(), type(compiled_kernels())(compiled_kernels().library, 1)
    packed, x = pack(ops, filled((300, 128), torch.bfloat16)), filled((40, 128), torch.bfloat16, 2)
    assert torch.equal(replace(packed, ops=alone).linear(x, None), packed.linear(x, None))
    assert torch.equal(pack(alone, filled((300, 128), torch.bfloat16)).packed, packed.packed)


@pytest.mark.parametrize("weight_only", [False, True])
@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("tokens", [1, 2, 3, 12, 13, 64, 129])
def test_int8_equals_its_oracle(tokens: int, dtype: torch.dtype, weight_only: bool) -> None:
    """Sums of whole numbers are exact, so nothing but the last rounding may differ."""
    ops = compiled_kernels()
    for num_in, num_out, bias in ((96, 80, True), (33, 1, False), (1, 65, True), (130, 100, False)):
        weight, offsets = filled((num_out, num_in), dtype), filled((num_out,), dtype, 3) if bias else None
        x = filled((tokens, num_in + 5), dtype, 2)[:, 2 : num_in + 2]
        x[0] = 0
        packed = pack_int8(ops, weight, weight_only=weight_only)
        oracle = Int8Weight.of(weight, weight_only=weight_only)
        assert torch.equal(packed.rows(torch.arange(num_out)), oracle.rows(torch.arange(num_out)))
        rtol, atol = (1e-5, 2e-5) if weight_only else (1.3e-6, 1e-5)
        ours, theirs = packed.linear(x, offsets, wide=True), oracle.linear(x, offsets, wide=True)
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)
        rtol, atol = CLOSE[dtype]
        torch.testing.assert_close(packed.linear(x, offsets), oracle.linear(x, offsets), rtol=rtol, atol=atol)


@pytest.mark.parametrize("weight_only", [False, True])
def test_int8_is_as_close_as_eight_bits_are(weight_only: bool) -> None:
    ops = compiled_kernels()
    weight, x = filled((300, 512), torch.float32), filled((20, 512), torch.float32, 2)
    wanted, packed = x @ weight.T, pack_int8(ops, weight, weight_only=weight_only)
    error = (packed.linear(x, None) - wanted).norm() / wanted.norm()
    assert error < (0.01 if weight_only else 0.02)
    rounded = (packed.linear(x, None) - x @ packed.rows(torch.arange(300)).T).norm() / wanted.norm()
    assert rounded < 1e-6 if weight_only else rounded > 1e-3


@pytest.mark.parametrize("weight_only", [False, True])
def test_a_token_of_int8_gets_the_same_output_in_any_batch(weight_only: bool) -> None:
    packed = pack_int8(compiled_kernels(), filled((100, 70), torch.bfloat16), weight_only=weight_only)
    x = filled((150, 70), torch.bfloat16, 2)
    whole = packed.linear(x, None)
    for start, stop in ((0, 1), (3, 9), (10, 22), (100, 150)):
        assert torch.equal(packed.linear(x[start:stop], None), whole[start:stop])
