"""Root-mean-square norms on a GPU, in Triton: alone, and fused with the residual sum.

One program per token. Rounding points are those of kernels/reference.py, the oracle. T tokens, N hidden size.
"""

import torch
from torch import Tensor

from ramet.kernels.triton_parts import INTERPRETED, _rounded
from ramet.kernels.triton_there import tl, triton


@triton.jit  # type: ignore[untyped-decorator]
def _norm(  # type: ignore[no-untyped-def]
    x, x_stride, residual, weight, out, size, eps,
    ADD: tl.constexpr, INTERPRETED: tl.constexpr, BLOCK: tl.constexpr,
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
    inverse = tl.rsqrt(tl.sum(value * value, axis=0) / size + eps)
    normed = _rounded(value * inverse, weight, INTERPRETED) * scale
    tl.store(out + row * size + cols, _rounded(normed, x, INTERPRETED).to(x.dtype.element_ty), mask=valid)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [T, N] -> [T, N]"""
    return _norm_rows(x, None, weight, eps)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """residual [T, N] is WRITTEN: residual += x. Returns the norm of the sum. [T, N]"""
    return _norm_rows(x, residual, weight, eps)


def warps_of(block: int) -> int:
    """For a row of so many numbers."""
    return min(16, max(4, block // 512))


def _norm_rows(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    tokens, size = x.shape
    assert x.stride(1) == 1 and (residual is None or residual.is_contiguous()), "numbers of a token lie side by side"
    out = torch.empty((tokens, size), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(size)
    if tokens:
        _norm[(tokens,)](
            x, x.stride(0), x if residual is None else residual, weight, out, size, eps,
            ADD=residual is not None, INTERPRETED=INTERPRETED, BLOCK=block,
            num_warps=warps_of(block),
        )  # fmt: skip
    return out
