"""What comes between a layer's projection and its attention on a GPU, in Triton: one launch for all of it.

Norms of heads, rotary position embedding, and the way of keys and values into the pool. One program per token and few
heads. kernels/reference.py holds the oracle. T tokens, G kv heads, D head size, S slots of the pool, L longest context.
"""

import torch
from torch import Tensor

from ramet.kernels import reference
from ramet.kernels.reference import HeadNorms, RopeTables
from ramet.kernels.triton_parts import INTERPRETED, _rounded, _stored
from ramet.kernels.triton_there import tl, triton

HEADS = 8  # of a program


@triton.jit  # type: ignore[untyped-decorator]
def _part(x, scale, weight, INTERPRETED: tl.constexpr, like, like_weight):  # type: ignore[no-untyped-def]
    """Part of some heads, normed: x [heads, n] float32, scale [heads, 1], weight [heads, n]."""
    return _rounded(_rounded(x * scale, like_weight, INTERPRETED) * weight, like, INTERPRETED)


@triton.jit  # type: ignore[untyped-decorator]
def _place(  # type: ignore[no-untyped-def]
    x, x_stride, cos, sin, positions, q_weight, k_weight, eps, keys, values, new_slots, heads, kv_heads,
    head_dim, half,
    NORMED: tl.constexpr, VALUES: tl.constexpr, INTERPRETED: tl.constexpr, HEADS: tl.constexpr,
    BLOCK: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """A head is two halves of BLOCK numbers that turn, and REST that do not (0: there are none).

    VALUES: their heads are normed too, without a weight.
    """
    token = tl.program_id(0).to(tl.int64)
    head, col = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, BLOCK)
    turning = head < heads + kv_heads
    there = head < heads + 2 * kv_heads
    written = there if VALUES else turning
    kind = x.dtype.element_ty
    valid = there[:, None] & (col < half)[None, :]
    at = x + token * x_stride + head[:, None] * head_dim + col[None, :]
    first = tl.load(at, mask=valid, other=0.0).to(tl.float32)
    second = tl.load(at + half, mask=valid, other=0.0).to(tl.float32)
    if REST > 0:
        further = 2 * half + tl.arange(0, REST)
        within = there[:, None] & (further < head_dim)[None, :]
        rest_at = x + token * x_stride + head[:, None] * head_dim + further[None, :]
        rest = tl.load(rest_at, mask=within, other=0.0).to(tl.float32)
    if NORMED:
        squares = tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1)
        if REST > 0:
            squares += tl.sum(rest * rest, axis=1)
        scale = tl.rsqrt(squares / head_dim + eps)[:, None]
        own = tl.where(head < heads, 1, 0)[:, None]
        w = tl.where(
            own == 1, tl.load(q_weight + col, mask=col < half, other=0.0).to(tl.float32)[None, :],
            tl.load(k_weight + col, mask=col < half, other=0.0).to(tl.float32)[None, :],
        )  # fmt: skip
        first = tl.where(turning[:, None], _part(first, scale, w, INTERPRETED, x, q_weight), first)
        w = tl.where(
            own == 1, tl.load(q_weight + half + col, mask=col < half, other=0.0).to(tl.float32)[None, :],
            tl.load(k_weight + half + col, mask=col < half, other=0.0).to(tl.float32)[None, :],
        )  # fmt: skip
        second = tl.where(turning[:, None], _part(second, scale, w, INTERPRETED, x, q_weight), second)
        if REST > 0:
            w = tl.where(
                own == 1, tl.load(q_weight + further, mask=further < head_dim, other=0.0).to(tl.float32)[None, :],
                tl.load(k_weight + further, mask=further < head_dim, other=0.0).to(tl.float32)[None, :],
            )  # fmt: skip
            rest = tl.where(turning[:, None], _part(rest, scale, w, INTERPRETED, x, q_weight), rest)
        if VALUES:
            first = tl.where(turning[:, None], first, _rounded(first * scale, x, INTERPRETED))
            second = tl.where(turning[:, None], second, _rounded(second * scale, x, INTERPRETED))
            if REST > 0:
                rest = tl.where(turning[:, None], rest, _rounded(rest * scale, x, INTERPRETED))
        if REST > 0:
            tl.store(rest_at, rest.to(kind), mask=within & written[:, None])
    angle = tl.load(positions + token) * half + col
    c = tl.load(cos + angle, mask=col < half, other=0.0)[None, :]
    s = tl.load(sin + angle, mask=col < half, other=0.0)[None, :]
    turned = _rounded(first * c - second * s, x, INTERPRETED)
    second = tl.where(turning[:, None], _rounded(second * c + first * s, x, INTERPRETED), second).to(kind)
    first = tl.where(turning[:, None], turned, first).to(kind)
    tl.store(at, first, mask=valid & written[:, None])
    tl.store(at + half, second, mask=valid & written[:, None])
    slot = tl.load(new_slots + token) * kv_heads
    is_key = turning & (head >= heads)
    key_at = (slot + head - heads)[:, None] * head_dim
    value_at = (slot + head - heads - kv_heads)[:, None] * head_dim
    of_keys, of_values = valid & is_key[:, None], valid & ~turning[:, None]
    tl.store(keys + key_at + col[None, :], _stored(first, keys, INTERPRETED), mask=of_keys)
    tl.store(keys + key_at + half + col[None, :], _stored(second, keys, INTERPRETED), mask=of_keys)
    tl.store(values + value_at + col[None, :], _stored(first, values, INTERPRETED), mask=of_values)
    tl.store(values + value_at + half + col[None, :], _stored(second, values, INTERPRETED), mask=of_values)
    if REST > 0:
        tl.store(
            keys + key_at + further[None, :], _stored(rest.to(kind), keys, INTERPRETED), mask=within & is_key[:, None]
        )
        tl.store(
            values + value_at + further[None, :],
            _stored(rest.to(kind), values, INTERPRETED),
            mask=within & ~turning[:, None],
        )


def norm_rope_store(
    qkv: Tensor,
    heads: int,
    rope: RopeTables,
    positions: Tensor,
    norms: HeadNorms | None,
    keys: Tensor,
    values: Tensor,
    slots: Tensor,
) -> None:
    """Norm heads, rotate, and store keys and values, as kernels/reference.py does. WRITES qkv, keys, values.

    qkv [T, H + 2 G, D], positions and slots [T] int64, keys and values [S, G, D], of float8_e4m3fn where the pool is.
    """
    if keys.dtype == torch.int8:
        return reference.norm_rope_store(qkv, heads, rope, positions, norms, keys, values, slots)
    tokens, all_heads, head_dim = qkv.shape
    half, kv_heads = rope.cos.shape[-1], keys.shape[1]
    if tokens:
        q_weight, k_weight, eps, of_values = (qkv, qkv, 0.0, False) if norms is None else norms
        rest = head_dim - 2 * half
        _place[(tokens, triton.cdiv(all_heads, HEADS))](
            qkv, qkv.stride(0), rope.cos, rope.sin, positions, q_weight, k_weight, eps, keys, values, slots, heads,
            kv_heads, head_dim, half, NORMED=norms is not None, VALUES=of_values, INTERPRETED=INTERPRETED,
            HEADS=HEADS, BLOCK=triton.next_power_of_2(half), REST=triton.next_power_of_2(rest) if rest else 0,
            num_warps=4,
        )  # fmt: skip
    return None
