"""Rotary position embedding and the way of keys and values into the pool, on a GPU, in Triton.

One program per token and few heads. kernels/reference.py holds the oracle.
T tokens, G kv heads, D head size, S slots of the pool, L longest context.
"""

import triton
import triton.language as tl
from torch import Tensor

from ramet.kernels.decode_attention import INTERPRETED
from ramet.kernels.norms import _rounded

HEADS = 8  # that one program turns
BLOCK = 1024  # numbers that one program stores


@triton.jit  # type: ignore[untyped-decorator]
def _rotate(  # type: ignore[no-untyped-def]
    x, x_stride, cos, sin, positions, num_heads, head_dim, half,
    INTERPRETED: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    heads, cols = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, BLOCK)
    angle = tl.load(positions + token) * half + cols
    c = tl.load(cos + angle, mask=cols < half, other=0.0)[None, :]
    s = tl.load(sin + angle, mask=cols < half, other=0.0)[None, :]
    valid = (heads < num_heads)[:, None] & (cols < half)[None, :]
    at = x + token * x_stride + heads[:, None] * head_dim + cols[None, :]
    first = tl.load(at, mask=valid, other=0.0).to(tl.float32)
    second = tl.load(at + half, mask=valid, other=0.0).to(tl.float32)
    tl.store(at, _rounded(first * c - second * s, x, INTERPRETED).to(x.dtype.element_ty), mask=valid)
    tl.store(at + half, _rounded(second * c + first * s, x, INTERPRETED).to(x.dtype.element_ty), mask=valid)


@triton.jit  # type: ignore[untyped-decorator]
def _store_kv(k, v, k_stride, v_stride, keys, values, slots, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    to = tl.load(slots + token) * size + cols
    tl.store(keys + to, tl.load(k + token * k_stride + cols, mask=cols < size), mask=cols < size)
    tl.store(values + to, tl.load(v + token * v_stride + cols, mask=cols < size), mask=cols < size)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor) -> None:
    """Turn the first rotary_dim values of every head, the two halves being the pairs. WRITES x.

    x [T, heads, D] (rows may be strided), cos and sin [L, rotary_dim / 2] float32, positions [T] int64.
    """
    tokens, heads, head_dim = x.shape
    half = cos.shape[-1]
    if tokens:
        _rotate[(tokens, triton.cdiv(heads, HEADS))](
            x, x.stride(0), cos, sin, positions, heads, head_dim, half,
            INTERPRETED=INTERPRETED, HEADS=HEADS, BLOCK=triton.next_power_of_2(half), num_warps=4,
        )  # fmt: skip


def store_kv(k: Tensor, v: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """k, v [T, G, D] (rows may be strided) into keys, values [S, G, D], which are WRITTEN, at slots [T] int64."""
    tokens, kv_heads, head_dim = k.shape
    size = kv_heads * head_dim
    if tokens:
        _store_kv[(tokens, triton.cdiv(size, BLOCK))](
            k, v, k.stride(0), v.stride(0), keys, values, slots, size, BLOCK=BLOCK, num_warps=4
        )
