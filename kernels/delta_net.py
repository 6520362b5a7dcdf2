"""Gated delta-net layers on a GPU, in Triton; kernels/reference_delta.py has the oracle, its letters and its rounding.

Three launches: what each token brings (its convolution over the tokens before it, the lengths of its queries and keys,
its gates), its way through the states, and the norm of what was read. A program of the second has some columns of
one state in its registers and takes a row's tokens one after the other, so what a token gets depends on no cut of its
prompt. Rows are read on the device: a graph of rows that decode serves any of them, and padding goes to place 0.
"""

import torch
from torch import Tensor

from ramet.kernels.reference_delta import DeltaShape, DeltaStates, DeltaWeights, PlacedRows, StateRows
from ramet.kernels.triton_parts import INTERPRETED, _rounded
from ramet.kernels.triton_there import tl, triton

COLUMNS = 8  # of a state for each program: one warp has them, whose sums need no shared memory
NUMBERS_OF_WARP = 1024  # of a state: 32 registers of a thread
CHANNELS = 128  # whose last tokens one program keeps


@triton.jit
def _softplus(x):  # type: ignore[no-untyped-def]
    """log(1 + exp(x)), small ones to their last bits, too: log(1 + u) = 2 atanh(u / (2 + u))."""
    u = tl.exp(-tl.abs(x))
    z = u / (2 + u)  # at most 1/3
    y = z * z
    series = 1 + y * (1 / 3 + y * (1 / 5 + y * (1 / 7 + y * (1 / 9 + y * (1 / 11 + y * (1 / 13))))))
    return tl.maximum(x, 0.0) + 2 * z * series


@triton.jit  # type: ignore[untyped-decorator]
def _bring(  # type: ignore[no-untyped-def]
    x, x_stride, gates, gates_stride, conv, a_log, dt_bias, last, row_of, rows, firsts, num_new, seq_lens, mixed, kept,
    key_heads, value_heads, key, value, TAPS: tl.constexpr, GATES: tl.constexpr, BLOCK: tl.constexpr,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    """One head of queries, of keys or of values of one token; the last program of a token has its gates."""
    t, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if part == 2 * key_heads + value_heads:
        h = tl.arange(0, GATES)
        valid = h < value_heads
        b = tl.load(gates + t * gates_stride + h, mask=valid, other=0.0).to(tl.float32)
        a = tl.load(gates + t * gates_stride + value_heads + h, mask=valid, other=0.0).to(tl.float32)
        rate = tl.exp(tl.load(a_log + h, mask=valid, other=0.0))
        decay = tl.exp(-rate * _softplus(a + tl.load(dt_bias + h, mask=valid, other=0.0)))
        tl.store(kept + t * 2 * value_heads + h, _rounded(1 / (1 + tl.exp(-b)), x, INTERPRETED), mask=valid)
        tl.store(kept + (t * 2 + 1) * value_heads + h, decay, mask=valid)
        return
    row = tl.load(row_of + t)
    place, before = tl.load(rows + row).to(tl.int64), t - tl.load(firsts + row)  # new tokens of the row before this one
    continues = tl.load(seq_lens + row) > tl.load(num_new + row)
    channels, of_keys = 2 * key_heads * key + value_heads * value, part < 2 * key_heads
    cols, size = tl.arange(0, BLOCK), tl.where(of_keys, key, value)
    valid = cols < size
    c = tl.where(of_keys, part * key, 2 * key_heads * key + (part - 2 * key_heads) * value) + cols
    total = tl.zeros((BLOCK,), tl.float32)
    for w in tl.static_range(TAPS):
        ago = TAPS - 1 - w
        new = tl.load(x + (t - ago) * x_stride + c, mask=cols < tl.where(before >= ago, size, 0), other=0.0)
        old = last + (place * channels + c) * (TAPS - 1) + before + w
        earlier = tl.load(old, mask=cols < tl.where((before < ago) & continues, size, 0), other=0.0)
        seen = new.to(tl.float32) + earlier.to(tl.float32)
        total += tl.load(conv + c * TAPS + w, mask=valid, other=0.0).to(tl.float32) * seen
    total = _rounded(total, x, INTERPRETED)
    active = _rounded(total / (1 + tl.exp(-total)), x, INTERPRETED)
    if of_keys:
        active *= tl.rsqrt(tl.sum(active * active, axis=0) + 1e-6)
        if part < key_heads:
            active *= tl.rsqrt(key * 1.0)
    tl.store(mixed + t * channels + c, active, mask=valid)


@triton.jit  # type: ignore[untyped-decorator]
def _keep_last(  # type: ignore[no-untyped-def]
    x, x_stride, last, first, place, to, num, continues, c, channels, TAPS: tl.constexpr
):
    """What the convolution of channels c saw of the last tokens after `num` of a row's go to the place `to`."""
    for w in tl.static_range(TAPS - 1):
        # below 0: of a token before these, which lies behind what is written where `to` is `place`
        at = num - (TAPS - 1) + w
        new = tl.load(x + (first + at) * x_stride + c, mask=c < tl.where(at >= 0, channels, 0), other=0.0)
        old = last + (place * channels + c) * (TAPS - 1) + num + w
        kept = tl.load(old, mask=c < tl.where((at < 0) & continues, channels, 0), other=0.0)
        tl.store(last + (to * channels + c) * (TAPS - 1) + w, tl.where(at >= 0, new, kept), mask=c < channels)


@triton.jit
def _token(  # type: ignore[no-untyped-def]
    mixed, kept, t, there, g, h, k_rows, cols, key_heads, value_heads, key, value, channels
):
    """q, k [K], v [columns], and what the state takes and keeps."""
    at = mixed + t * channels
    q = tl.load(at + g * key + k_rows, mask=k_rows < tl.where(there, key, 0), other=0.0)
    k = tl.load(at + (key_heads + g) * key + k_rows, mask=k_rows < tl.where(there, key, 0), other=0.0)
    v = tl.load(at + 2 * key_heads * key + h * value + cols, mask=cols < tl.where(there, value, 0), other=0.0)
    beta = tl.load(kept + t * 2 * value_heads + h, mask=there, other=0.0)
    decay = tl.load(kept + (t * 2 + 1) * value_heads + h, mask=there, other=0.0)
    return q, k, v, beta, decay


@triton.jit(do_not_specialize=["saves"])  # type: ignore[untyped-decorator]
def _advance(  # type: ignore[no-untyped-def]
    x, x_stride, mixed, kept, last, matrix, rows, firsts, num_new, seq_lens, save_at, save_to, saves, read,
    key_heads, value_heads, key, value, TAPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    CHANNELS: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """A row's tokens through some columns of one state; or, behind these programs, what is kept of its last tokens."""
    r, part = tl.program_id(0), tl.program_id(1)
    num = tl.load(num_new + r)
    if num == 0:
        return
    place, first = tl.load(rows + r).to(tl.int64), tl.load(firsts + r).to(tl.int64)
    continues = tl.load(seq_lens + r) > num
    channels, blocks = 2 * key_heads * key + value_heads * value, tl.cdiv(value, COLUMNS)
    if part >= value_heads * blocks:
        c = (part - value_heads * blocks) * CHANNELS + tl.arange(0, CHANNELS)
        for j in range(saves):
            after = tl.load(save_at + r * saves + j)
            if after > 0:
                to = tl.load(save_to + r * saves + j).to(tl.int64)
                _keep_last(x, x_stride, last, first, place, to, after, continues, c, channels, TAPS)
        _keep_last(x, x_stride, last, first, place, place, num, continues, c, channels, TAPS)
        return
    h = part // blocks
    g = h // (value_heads // key_heads)
    k_rows, cols = tl.arange(0, ROWS), (part % blocks) * COLUMNS + tl.arange(0, COLUMNS)
    own = (h * key + k_rows[:, None]) * value + cols[None, :]
    inside = (k_rows < key)[:, None] & (cols < value)[None, :]
    size = value_heads * key * value
    known = (k_rows < tl.where(continues, key, 0))[:, None] & (cols < value)[None, :]
    state = tl.load(matrix + place * size + own, mask=known, other=0.0)
    q, k, v, beta, decay = _token(
        mixed, kept, first, num > 0, g, h, k_rows, cols, key_heads, value_heads, key, value, channels
    )
    for t in range(num):
        behind = _token(  # on its way while this one is computed
            mixed, kept, first + t + 1, t + 1 < num, g, h, k_rows, cols, key_heads, value_heads, key, value, channels
        )  # fmt: skip
        state = state * decay
        missing = beta * (v - tl.sum(state * k[:, None], axis=0))
        state += k[:, None] * missing[None, :]
        o = _rounded(tl.sum(state * q[:, None], axis=0), x, INTERPRETED)
        tl.store(read + ((first + t) * value_heads + h) * value + cols, o.to(read.dtype.element_ty), mask=cols < value)
        for j in range(saves):
            if tl.load(save_at + r * saves + j) == t + 1:
                to = tl.load(save_to + r * saves + j).to(tl.int64)
                tl.store(matrix + to * size + own, state, mask=inside)
        q, k, v, beta, decay = behind
    tl.store(matrix + place * size + own, state, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _normed(  # type: ignore[no-untyped-def]
    read, x, x_stride, weight, out, eps, channels, value_heads, value, BLOCK: tl.constexpr, INTERPRETED: tl.constexpr
):
    """One head of one token: norm(o) silu(z)."""
    t, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    cols = tl.arange(0, BLOCK)
    valid = cols < value
    at = (t * value_heads + h) * value + cols
    o = tl.load(read + at, mask=valid, other=0.0).to(tl.float32)
    z = tl.load(x + t * x_stride + channels + h * value + cols, mask=valid, other=0.0).to(tl.float32)
    o = _rounded(o * tl.rsqrt(tl.sum(o * o, axis=0) / value + eps), x, INTERPRETED)
    o = _rounded(o * tl.load(weight + cols, mask=valid, other=0.0).to(tl.float32), x, INTERPRETED)
    o = _rounded(o * (z / (1 + tl.exp(-z))), x, INTERPRETED)
    tl.store(out + at, o.to(out.dtype.element_ty), mask=valid)


def warps_of(rows: int) -> int:
    """For a state of so many rows, padded."""
    return max(1, rows * COLUMNS // NUMBERS_OF_WARP)


def delta_net(
    x: Tensor, gates: Tensor, of: DeltaShape, weights: DeltaWeights, states: DeltaStates, at: StateRows
) -> Tensor:
    """The op of the oracle. Reads `at.placed` alone where it is there; then nothing waits for the device."""
    tokens = len(x)
    assert x.stride(1) == gates.stride(1) == 1, "numbers of a token lie side by side"
    out = torch.empty((tokens, of.values), dtype=x.dtype, device=x.device)
    if not tokens:
        return out
    rows = PlacedRows.of(at, x.device) if at.placed is None else at.placed
    mixed = torch.empty((tokens, of.channels), dtype=torch.float32, device=x.device)
    kept = torch.empty((tokens, 2 * of.value_heads), dtype=torch.float32, device=x.device)
    read = torch.empty_like(out)
    heads, padded = 2 * of.key_heads + of.value_heads, triton.next_power_of_2
    _bring[(tokens, heads + 1)](
        x, x.stride(0), gates, gates.stride(0), weights.conv, weights.a_log, weights.dt_bias, states.last, rows.row_of,
        rows.rows, rows.firsts, rows.num_new, rows.seq_lens, mixed, kept, of.key_heads, of.value_heads, of.key,
        of.value, TAPS=of.taps, GATES=padded(of.value_heads), BLOCK=padded(max(of.key, of.value)),
        INTERPRETED=INTERPRETED, num_warps=1,
    )  # fmt: skip
    programs = of.value_heads * triton.cdiv(of.value, COLUMNS) + triton.cdiv(of.channels, CHANNELS)
    _advance[(len(rows.rows), programs)](
        x, x.stride(0), mixed, kept, states.last, states.matrix, rows.rows, rows.firsts, rows.num_new, rows.seq_lens,
        rows.save_at, rows.save_to, rows.save_at.shape[1], read, of.key_heads, of.value_heads, of.key, of.value,
        TAPS=of.taps, ROWS=padded(of.key), COLUMNS=COLUMNS, CHANNELS=CHANNELS, INTERPRETED=INTERPRETED,
        num_warps=warps_of(padded(of.key)),
    )  # fmt: skip
    _normed[(tokens, of.value_heads)](
        read, x, x.stride(0), weights.norm, out, weights.eps, of.channels, of.value_heads, of.value,
        BLOCK=padded(of.value), INTERPRETED=INTERPRETED, num_warps=1,
    )  # fmt: skip
    return out
