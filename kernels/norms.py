"""Root-mean-square norms on a GPU, in Triton: alone, fused with the residual sum, of each head by itself.

One program per token (`_norm`) or per token and few heads (`_norm_heads`). Rounding points are those of
kernels/reference.py, the oracle. T tokens, N hidden size, D head size.
"""

import triton
import triton.language as tl
from torch import Tensor, empty_like

from ramet.kernels.decode_attention import INTERPRETED

HEADS = 8  # that one program norms


@triton.jit  # type: ignore[untyped-decorator]
def _rounded(x, like, INTERPRETED: tl.constexpr):  # type: ignore[no-untyped-def]
    """x float32 as the dtype of `like` holds it, in float32. The interpreter cuts a bfloat16 off, so it rounds here."""
    if INTERPRETED and like.dtype.element_ty == tl.bfloat16:
        bits = x.to(tl.int32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & -65536
        return bits.to(tl.float32, bitcast=True)
    return x.to(like.dtype.element_ty).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def _scaled(x, weight, size, eps, like, PLUS_ONE: tl.constexpr, INTERPRETED: tl.constexpr, AXIS: tl.constexpr):  # type: ignore[no-untyped-def]
    """x float32, zeros beyond `size`, normed over an axis and weighted."""
    inverse = tl.rsqrt(tl.sum(x * x, axis=AXIS, keep_dims=True) / size + eps)
    return x * inverse * (1.0 + weight) if PLUS_ONE else _rounded(x * inverse, like, INTERPRETED) * weight


@triton.jit  # type: ignore[untyped-decorator]
def _norm(  # type: ignore[no-untyped-def]
    x, x_stride, residual, weight, out, size, eps,
    PLUS_ONE: tl.constexpr, ADD: tl.constexpr, INTERPRETED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    valid = cols < size
    value = tl.load(x + row * x_stride + cols, mask=valid, other=0.0).to(tl.float32)
    if ADD:
        at = residual + row * size + cols
        value = _rounded(value + tl.load(at, mask=valid, other=0.0).to(tl.float32), x, INTERPRETED)
        tl.store(at, value.to(x.dtype.element_ty), mask=valid)
    scale = tl.load(weight + cols, mask=valid, other=0.0).to(tl.float32)
    normed = _scaled(value, scale, size, eps, x, PLUS_ONE, INTERPRETED, 0)
    tl.store(out + row * size + cols, _rounded(normed, x, INTERPRETED).to(x.dtype.element_ty), mask=valid)


@triton.jit  # type: ignore[untyped-decorator]
def _norm_heads(  # type: ignore[no-untyped-def]
    x, x_stride, weight, num_heads, size, eps,
    PLUS_ONE: tl.constexpr, INTERPRETED: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    heads, cols = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, BLOCK)
    at = x + row * x_stride + heads[:, None] * size + cols[None, :]
    valid = (heads < num_heads)[:, None] & (cols < size)[None, :]
    scale = tl.load(weight + cols, mask=cols < size, other=0.0).to(tl.float32)[None, :]
    normed = _scaled(tl.load(at, mask=valid, other=0.0).to(tl.float32), scale, size, eps, x, PLUS_ONE, INTERPRETED, 1)
    tl.store(at, _rounded(normed, x, INTERPRETED).to(x.dtype.element_ty), mask=valid)


def rms_norm(x: Tensor, weight: Tensor, eps: float, plus_one: bool = False) -> Tensor:
    """x [T, N] -> [T, N]"""
    return _norm_rows(x, None, weight, eps, plus_one)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float, plus_one: bool = False) -> Tensor:
    """residual [T, N] is WRITTEN: residual += x. Returns the norm of the sum. [T, N]"""
    return _norm_rows(x, residual, weight, eps, plus_one)


def norm_heads(x: Tensor, weight: Tensor, eps: float, plus_one: bool = False) -> None:
    """Each head's own norm. WRITES x [T, heads, D] (rows may be strided); weight [D]."""
    tokens, heads, size = x.shape
    if tokens:
        _norm_heads[(tokens, triton.cdiv(heads, HEADS))](
            x, x.stride(0), weight, heads, size, eps,
            PLUS_ONE=plus_one, INTERPRETED=INTERPRETED, HEADS=HEADS, BLOCK=triton.next_power_of_2(size), num_warps=4,
        )  # fmt: skip


def warps_of(block: int) -> int:
    """For a row of so many numbers."""
    return min(16, max(4, block // 512))


def _norm_rows(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float, plus_one: bool) -> Tensor:
    tokens, size = x.shape
    out = empty_like(x)
    block = triton.next_power_of_2(size)
    if tokens:
        _norm[(tokens,)](
            x, x.stride(0), x if residual is None else residual, weight, out, size, eps,
            PLUS_ONE=plus_one, ADD=residual is not None, INTERPRETED=INTERPRETED, BLOCK=block,
            num_warps=warps_of(block),
        )  # fmt: skip
    return out
