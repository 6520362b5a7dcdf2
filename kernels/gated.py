"""Gated activations and the cap of logits on a GPU, in Triton. kernels/reference.py holds the oracle.

T tokens, F intermediate size.
"""

import torch
from torch import Tensor

from ramet.kernels.triton_parts import INTERPRETED, _capped, _rounded
from ramet.kernels.triton_there import tl, triton

BLOCK = 1024
SILU, GELU, GELU_TANH, CLAMPED = 0, 1, 2, 3


@triton.jit  # type: ignore[untyped-decorator]
def _gated(  # type: ignore[no-untyped-def]
    gate_up, out, size, alpha, limit, KIND: tl.constexpr, INTERPRETED: tl.constexpr, BLOCK: tl.constexpr
):
    """alpha and limit are of CLAMPED."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid = cols < size
    at = gate_up + row * 2 * size + cols
    gate = tl.load(at, mask=valid, other=0.0).to(tl.float32)
    up = tl.load(at + size, mask=valid, other=0.0).to(tl.float32)
    if KIND == 3:
        gate = tl.minimum(gate, limit)
        up = tl.maximum(tl.minimum(up, limit), -limit) + 1
        product = _rounded(gate / (1 + tl.exp(-alpha * gate)) * up, gate_up, INTERPRETED)
        tl.store(out + row * size + cols, product.to(gate_up.dtype.element_ty), mask=valid)
        return
    if KIND == 0:
        active = gate / (1 + tl.exp(-gate))
    elif KIND == 1:
        active = 0.5 * gate * (1 + tl.erf(gate * 0.7071067811865476))
    else:
        active = 0.5 * gate * (1 + _capped(0.7978845608028654 * (gate + 0.044715 * gate * gate * gate), 1.0))
    product = _rounded(_rounded(active, gate_up, INTERPRETED) * up, gate_up, INTERPRETED)
    tl.store(out + row * size + cols, product.to(gate_up.dtype.element_ty), mask=valid)


@triton.jit(do_not_specialize=["num"])  # type: ignore[untyped-decorator]
def _softcap(x, num, cap, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, _capped(tl.load(x + at, mask=at < num, other=0.0), cap), mask=at < num)


def silu_mul(gate_up: Tensor) -> Tensor:
    """[T, 2 F] -> [T, F]: silu of the first half, rounded, times the second half."""
    return _run(gate_up, SILU)


def gelu_mul(gate_up: Tensor, tanh: bool) -> Tensor:
    """[T, 2 F] -> [T, F]: gelu of the first half, exact or by tanh, rounded, times the second half."""
    return _run(gate_up, GELU_TANH if tanh else GELU)


def clamped_mul(gate_up: Tensor, alpha: float, limit: float) -> Tensor:
    """[T, 2 F] -> [T, F]: gate * sigmoid(alpha * gate) * (up + 1) of clamped ones, rounded once."""
    return _run(gate_up, CLAMPED, alpha, limit)


def softcap(x: Tensor, cap: float) -> None:
    """WRITES x float32, contiguous: each value v becomes cap * tanh(v / cap)."""
    assert x.is_contiguous(), "the values lie side by side"
    if x.numel():
        _softcap[(triton.cdiv(x.numel(), BLOCK),)](x, x.numel(), cap, BLOCK=BLOCK)


def _run(gate_up: Tensor, kind: int, alpha: float = 0.0, limit: float = 0.0) -> Tensor:
    tokens, both = gate_up.shape
    assert gate_up.is_contiguous(), "gate and up lie side by side"
    out = torch.empty((tokens, both // 2), dtype=gate_up.dtype, device=gate_up.device)
    if tokens:
        _gated[(tokens, triton.cdiv(both // 2, BLOCK))](
            gate_up, out, both // 2, alpha, limit, KIND=kind, INTERPRETED=INTERPRETED, BLOCK=BLOCK, num_warps=4
        )
    return out
