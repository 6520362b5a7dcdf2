"""The compiled small ops against kernels/reference.py over odd sizes, strides and dtypes."""

import re
import subprocess
import sys

import pytest
import torch
from compiled import compiled_kernels

from ramet.kernels import reference
from ramet.kernels.cpu.ops import CpuOps

pytestmark = pytest.mark.usefixtures("two_threads")

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-9}
DTYPES = list(TOLERANCE)


FEW_THREADS = """
import ctypes, resource, sys
library, threads = ctypes.CDLL(sys.argv[1]), 64
sinks = (ctypes.c_float * (4 * threads))(*[1.0] * 4 * threads)  # of each thread: three inputs, one output
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20), used + (40 << 20)))  # of which a thread's stack takes 8 MiB
library.ramet_multiply.argtypes = ctypes.c_int64, ctypes.c_void_p, ctypes.c_int
library.ramet_multiply(1, sinks, threads)
library.ramet_multiply(2, sinks, threads)
print(len(set(sinks[3::4])), sinks[3] != 1.0)
"""


@pytest.fixture(scope="module")
def ops() -> CpuOps:
    return compiled_kernels()


def test_threads_that_cannot_be_made_are_done_without(ops: CpuOps) -> None:
    command = [sys.executable, "-c", FEW_THREADS, ops.library._name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "1 True\n"), done.stderr
    assert re.fullmatch(r"ramet: kernels have \d+ threads instead of 64, .*: lower --num-threads\n", done.stderr)


def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def assert_alike(got: torch.Tensor, want: torch.Tensor) -> None:
    limit = TOLERANCE[want.dtype]
    torch.testing.assert_close(got, want, rtol=limit, atol=limit)


def norm_weight(size: int, dtype: torch.dtype, wide: bool) -> torch.Tensor:
    return random(size, dtype=torch.float32 if wide else dtype)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "size"), [(1, 64), (1, 7), (3, 129), (127, 768)])
def test_norm_equals_reference(ops: CpuOps, dtype: torch.dtype, tokens: int, size: int, wide: bool) -> None:
    x, weight = random(tokens, size, dtype=dtype), norm_weight(size, dtype, wide)
    assert_alike(ops.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_norm_with_residual_writes_the_sum(ops: CpuOps, dtype: torch.dtype, wide: bool) -> None:
    x, residual, weight = random(5, 100, dtype=dtype), random(5, 100, dtype=dtype) * 3, norm_weight(100, dtype, wide)
    other = residual.clone()
    got = ops.add_rms_norm(x, residual, weight, 1e-5)
    assert_alike(got, reference.add_rms_norm(x, other, weight, 1e-5))
    assert torch.equal(residual, other)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "heads", "head_dim"), [(1, 1, 16), (3, 6, 64), (127, 2, 80), (5, 3, 7), (0, 2, 16)])
def test_norm_of_heads_of_a_strided_part_equals_reference(
    ops: CpuOps, dtype: torch.dtype, tokens: int, heads: int, head_dim: int, wide: bool
) -> None:
    packed, weight = random(tokens, heads + 3, head_dim, dtype=dtype), norm_weight(head_dim, dtype, wide)
    other = packed.clone()
    ops.norm_heads(packed[:, 1 : 1 + heads], weight, 1e-6)
    reference.norm_heads(other[:, 1 : 1 + heads], weight, 1e-6)
    assert_alike(packed, other)
    rest = [0, *range(1 + heads, heads + 3)]
    assert torch.equal(packed[:, rest], other[:, rest])


@pytest.mark.parametrize("dtype", DTYPES)
def test_reference_norms_are_those_of_transformers(dtype: torch.dtype) -> None:
    from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
    from transformers.models.gemma4.modeling_gemma4 import Gemma4RMSNorm
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssRMSNorm
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    x, weight = random(9, 96, dtype=dtype), random(96, dtype=dtype)
    wide = weight.float()
    for theirs, ours in (
        (LlamaRMSNorm, weight), (Gemma2RMSNorm, 1 + wide), (Gemma4RMSNorm, wide), (GptOssRMSNorm, wide),
    ):  # fmt: skip
        norm = theirs(96, 1e-6)
        norm.weight.data = weight
        assert torch.equal(reference.rms_norm(x, ours, 1e-6), norm(x)), theirs


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "size"), [(1, 128), (2, 33), (129, 352)])
def test_silu_equals_reference(ops: CpuOps, dtype: torch.dtype, tokens: int, size: int) -> None:
    gate_up = random(tokens, 2 * size, dtype=dtype) * 8
    gate_up[0, 0], gate_up[0, 1] = 90.0, -90.0
    assert_alike(ops.silu_mul(gate_up), reference.silu_mul(gate_up))


@pytest.mark.parametrize("dtype", DTYPES)
def test_norm_of_heads_without_a_weight(ops: CpuOps, dtype: torch.dtype) -> None:
    packed = random(3, 5, 48, dtype=dtype)
    other = packed.clone()
    ops.norm_heads(packed[:, 2:4], None, 1e-6)
    reference.norm_heads(other[:, 2:4], None, 1e-6)
    assert_alike(packed, other)


@pytest.mark.parametrize("tanh", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "size"), [(1, 16), (5, 33), (130, 96)])
def test_gelu_of_one_by_a_part_of_another(ops: CpuOps, dtype: torch.dtype, tokens: int, size: int, tanh: bool) -> None:
    gate, beside = random(tokens, size, dtype=dtype) * 3, random(tokens, 3 * size, dtype=dtype)
    up = beside[:, size : 2 * size]
    got = ops.gelu_by(gate, up, tanh)
    if dtype is not torch.float32:
        assert_alike(got, reference.gelu_by(gate, up, tanh))
        return
    # far below 0 the two parts of gelu cancel, in torch's own float32 most of all: so float64 is asked
    want, made_of = reference.gelu_by(gate.double(), up.double(), tanh), (gate * up).abs()
    assert ((got - want).abs() <= 5e-7 * (1 + made_of)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "size"), [(1, 16), (5, 33), (130, 96), (0, 8)])
def test_a_sum_that_is_scaled(ops: CpuOps, dtype: torch.dtype, tokens: int, size: int) -> None:
    x, y, factor = random(tokens, size, dtype=dtype), random(tokens, size, dtype=dtype) * 3, torch.tensor([0.3])
    for added, by in ((y, None), (None, factor), (y, factor)):
        ours, theirs = x.clone(), x.clone()
        ops.add_scaled(ours, added, by)
        reference.add_scaled(theirs, added, by)
        assert_alike(ours, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "size"), [(1, 128), (2, 33), (129, 352)])
def test_clamped_gates_equal_reference(ops: CpuOps, dtype: torch.dtype, tokens: int, size: int) -> None:
    gate_up = random(tokens, 2 * size, dtype=dtype) * 8
    gate_up[0, :4] = torch.tensor([90.0, -90.0, 7.0, -7.0])
    assert_alike(ops.clamped_mul(gate_up, 1.702, 7.0), reference.clamped_mul(gate_up, 1.702, 7.0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("head_dim", "half"), [(64, 32), (32, 16), (80, 40), (64, 12)])
def test_rotation_of_a_strided_part_equals_reference(ops: CpuOps, dtype: torch.dtype, head_dim: int, half: int) -> None:
    packed = random(9, 8, head_dim, dtype=dtype)
    other = packed.clone()
    angles = torch.outer(torch.arange(50.0), torch.rand(half))
    positions = torch.tensor([0, 49, 3, 3, 17, 21, 1, 2, 30])
    ops.rotate(packed[:, :6], angles.cos(), angles.sin(), positions)
    reference.rotate(other[:, :6], angles.cos(), angles.sin(), positions)
    assert_alike(packed, other)
    assert torch.equal(packed[:, 6:], other[:, 6:])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, 200])
def test_store_writes_the_named_slots_alone(ops: CpuOps, dtype: torch.dtype, tokens: int) -> None:
    packed = random(tokens, 6, 64, dtype=dtype)
    k, v = packed[:, 2:4], packed[:, 4:]
    slots = torch.randperm(400, generator=torch.Generator().manual_seed(1))[:tokens]
    ours = [torch.zeros(400, 2, 64, dtype=dtype) for _ in range(2)]
    theirs = [torch.zeros(400, 2, 64, dtype=dtype) for _ in range(2)]
    ops.store_kv(k, v, *ours, slots)
    reference.store_kv(k, v, *theirs, slots)
    assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [8, 16, 24, 64, 80, 100])
def test_store_of_int8_rounds_as_the_reference(ops: CpuOps, dtype: torch.dtype, head_dim: int) -> None:
    packed = random(200, 6, head_dim, dtype=dtype)
    packed[3] = 0  # whose scale is 0
    slots = torch.randperm(400, generator=torch.Generator().manual_seed(1))[:200]
    ours = [torch.zeros(400, 2, head_dim + 4, dtype=torch.int8) for _ in range(2)]
    theirs = [torch.zeros(400, 2, head_dim + 4, dtype=torch.int8) for _ in range(2)]
    ops.store_kv(packed[:, 2:4], packed[:, 4:], *ours, slots)
    reference.store_kv(packed[:, 2:4], packed[:, 4:], *theirs, slots)
    assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])
    wide = reference.widened(ours[0][slots])
    largest = packed[:, 2:4].float().abs().amax(-1, keepdim=True)
    assert ((wide - packed[:, 2:4].float()).abs() <= largest / 253).all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("at", [0, 63])
def test_a_number_that_is_not_finite_is_seen_in_int8(ops: CpuOps, value: float, at: int) -> None:
    keys = random(3, 2, 64, dtype=torch.bfloat16)
    keys[1, 1, at] = value
    stored = [torch.zeros(3, 2, 68, dtype=torch.int8) for _ in range(2)]
    ops.store_kv(keys, keys, *stored, torch.arange(3))
    finite = reference.widened(stored[0]).isfinite()
    assert not finite[1, 1].any() and finite[[0, 2]].all() and finite[1, 0].all()


def test_bfloat16_rounds_to_even_and_keeps_nan(ops: CpuOps) -> None:
    """The norm of a residual is where the kernels round: compare bit for bit with torch's own rounding."""
    exact = torch.randn(64, 64, generator=torch.Generator().manual_seed(2))
    x, residual = exact.bfloat16(), (exact.flip(0) * 1.37).bfloat16()
    x[3, 5] = torch.nan
    summed = residual + x
    ops.add_rms_norm(x, residual, torch.ones(64, dtype=torch.bfloat16), 1e-5)
    assert torch.equal(residual.isnan(), summed.isnan())
    assert torch.equal(residual.nan_to_num(), summed.nan_to_num())


@pytest.mark.parametrize("vocabulary", [1, 31, 32, 97, 128_256])
@pytest.mark.parametrize("rows", [[], [0], [3, 1, 0]])
def test_mask_equals_reference(ops: CpuOps, vocabulary: int, rows: list[int]) -> None:
    generator = torch.Generator().manual_seed(vocabulary)
    words = -(-vocabulary // 32)
    allowed = torch.randint(-(2**31), 2**31, (len(rows), words), generator=generator, dtype=torch.int64).int()
    if len(rows) > 1:
        allowed[0], allowed[1] = -1, 0  # everything, nothing
    logits, at = random(4, vocabulary, dtype=torch.float32), torch.tensor(rows, dtype=torch.int32)
    other = logits.clone()
    ops.mask(logits, at, allowed)
    reference.mask(other, at, allowed)
    assert torch.equal(logits, other)
    untouched = [row for row in range(4) if row not in rows]
    assert torch.equal(logits[untouched], random(4, vocabulary, dtype=torch.float32)[untouched])
