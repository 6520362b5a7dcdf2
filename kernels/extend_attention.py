"""Extend attention on a GPU, in Triton: the new tokens of each row against its cached prefix and against themselves.

The prefix is read from the pool where it lies, slot by slot; the new keys and values are read side by side from where
the layer made them. Query heads that share keys and values lie in one tile, so both are read once for all of them. A
program's tile is a few tokens of one row (`ExtendBlocks`); results do not depend on other rows. Without a window, only
the tiles of keys at the end of the prefix and on the diagonal are masked (FlashAttention-2; Dao 2023); with one, all
are. kernels/reference.py holds the oracle.
R rows, T new tokens over all rows, H query heads, G kv heads, D head size, S slots of the pool, L longest context.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ramet.kernels.attention_call import AttendCall, Extends
from ramet.kernels.triton_parts import INTERPRETED, LOG2_E, _as_kept, _take_in, _tile, padded
from ramet.kernels.triton_there import tl, triton
from ramet.kernels.tuned import ExtendTuning, extend_tuning, launched, processor_of


@triton.jit  # type: ignore[untyped-decorator]
def _extend(  # type: ignore[no-untyped-def]
    q, q_stride, k_new, v_new, new_stride, keys, values, slot_stride, table, table_stride,
    block_rows, block_starts, rows, firsts, num_new, seq_lens, out, sinks, key_ends, scale, window, cap,
    GROUP: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, TOKENS: tl.constexpr,
    LANES: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr, WINDOWED: tl.constexpr, CAPPED: tl.constexpr,
    SINKS: tl.constexpr, AHEAD: tl.constexpr, PARTS: tl.constexpr, LOG2_E: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """A program: a kv head and one of the PARTS of a tile of tokens, TOKENS each. Keys before `whole` are not masked.

    `sinks` is any tensor without SINKS, `key_ends` without AHEAD.
    """
    head, block = tl.program_id(0), tl.program_id(1) // PARTS
    row = tl.load(block_rows + block)
    start = tl.load(block_starts + block) + tl.program_id(1) % PARTS * TOKENS  # of the row's new tokens
    first, new, length = tl.load(firsts + row), tl.load(num_new + row), tl.load(seq_lens + row)
    if start >= new:  # nothing is left for this part, or the tile is one that a graph has beside those of its step
        return
    cached = length - new
    lanes, dims, cols = tl.arange(0, LANES), tl.arange(0, D_PAD), tl.arange(0, BLOCK)
    in_head = dims < D
    token = start + lanes // GROUP  # of the row's new ones
    heads = head * GROUP + lanes % GROUP
    within = ((lanes < TOKENS * GROUP) & (token < new))[:, None] & in_head[None, :]
    position = cached + token
    queries = tl.load(
        q + (first + token).to(tl.int64)[:, None] * q_stride + heads[:, None] * D + dims[None, :],
        mask=within,
        other=0.0,
    )
    if INTERPRETED:
        queries = queries.to(tl.float32)
    best = tl.full((LANES,), float("-inf"), tl.float32)
    mass = tl.zeros((LANES,), tl.float32)
    sums = tl.zeros((LANES, D_PAD), tl.float32)

    own = table + tl.load(rows + row).to(tl.int64) * table_stride
    oldest = tl.maximum(cached + start - window + 1, 0) if WINDOWED else 0  # that the first query key_ends
    newest = tl.minimum(start + TOKENS, new)  # of the new tokens, those before it are seen by some query
    end = token + 1  # of those that a query key_ends
    if AHEAD:
        end = tl.load(key_ends + first + token, mask=token < newest, other=0) - cached  # less than 1: no query
        newest = tl.max(end, 0)
    whole = oldest + (cached - oldest) // BLOCK * BLOCK
    if WINDOWED:
        whole = oldest
    for at in tl.range(oldest, whole, BLOCK, num_stages=STAGES):
        slots = tl.load(own + at + cols).to(tl.int64)
        places = slots[:, None] * slot_stride + head * D + dims[None, :]
        k = _tile(keys, places, in_head, cols, D == D_PAD, True).to(queries.dtype)
        v = _tile(values, places, in_head, cols, D == D_PAD, True).to(queries.dtype)
        best, mass, sums = _take_in(queries, k, v, in_head, best, mass, sums, scale, cap, False, CAPPED, LOG2_E)
    for at in tl.range(whole, cached, BLOCK, num_stages=STAGES):
        key = at + cols
        slots = tl.load(own + tl.minimum(key, cached - 1)).to(tl.int64)
        places = slots[:, None] * slot_stride + head * D + dims[None, :]
        k = _tile(keys, places, in_head, cols, D == D_PAD, True).to(queries.dtype)
        v = _tile(values, places, in_head, cols, D == D_PAD, True).to(queries.dtype)
        hidden = (key >= cached)[None, :]
        if WINDOWED:
            hidden = hidden | (key[None, :] <= (position - window)[:, None])
        best, mass, sums = _take_in(queries, k, v, hidden, best, mass, sums, scale, cap, True, CAPPED, LOG2_E)

    oldest = tl.maximum(start - window + 1, 0) if WINDOWED else 0  # now of the new tokens
    whole = oldest if WINDOWED else start // BLOCK * BLOCK  # before the diagonal
    for at in tl.range(oldest, whole, BLOCK, num_stages=STAGES):
        places = (first + at + cols).to(tl.int64)[:, None] * new_stride + head * D + dims[None, :]
        k = _as_kept(_tile(k_new, places, in_head, cols, D == D_PAD, True), keys, queries, INTERPRETED)
        v = _as_kept(_tile(v_new, places, in_head, cols, D == D_PAD, True), keys, queries, INTERPRETED)
        best, mass, sums = _take_in(queries, k, v, in_head, best, mass, sums, scale, cap, False, CAPPED, LOG2_E)
    for at in tl.range(whole, newest, BLOCK, num_stages=STAGES):
        key = at + cols
        valid = key < newest
        places = (first + key).to(tl.int64)[:, None] * new_stride + head * D + dims[None, :]
        k = _as_kept(_tile(k_new, places, in_head, valid, D == D_PAD, False), keys, queries, INTERPRETED)
        v = _as_kept(_tile(v_new, places, in_head, valid, D == D_PAD, False), keys, queries, INTERPRETED)
        hidden = key[None, :] >= end[:, None]
        if WINDOWED:
            hidden = hidden | (key[None, :] <= (token - window)[:, None])
        best, mass, sums = _take_in(queries, k, v, hidden, best, mass, sums, scale, cap, True, CAPPED, LOG2_E)

    if SINKS:
        mass += tl.exp2(tl.load(sinks + heads).to(tl.float32) * LOG2_E - best)
    to = out + ((first + token).to(tl.int64)[:, None] * (KV_HEADS * GROUP) + heads[:, None]) * D + dims[None, :]
    tl.store(to, (sums / mass[:, None]).to(out.dtype.element_ty), mask=within)


@dataclass(frozen=True, slots=True)
class ExtendBlocks:
    """Which tokens of which row each tile has, on the host: rows [n] int32 of the R, starts [n] int32 in the row."""

    rows: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int32]

    @classmethod
    def of(cls, num_new: npt.NDArray[np.int32], seq_lens: npt.NDArray[np.int32], tokens: int) -> "ExtendBlocks":
        """Tiles of so many tokens of rows with num_new [R] of seq_lens [R]; those with most to read come first."""
        counts = -(-num_new // tokens)
        rows = np.repeat(np.arange(len(num_new), dtype=np.int32), counts)
        starts = np.arange(len(rows), dtype=np.int32) - np.repeat(np.cumsum(counts) - counts, counts).astype(np.int32)
        starts = (starts * tokens).astype(np.int32)
        seen = (seq_lens - num_new)[rows] + starts
        order = np.argsort(-seen, kind="stable")
        return cls(rows[order], starts[order])


def tokens_of_tile(heads: int, kv_heads: int, tuning: ExtendTuning) -> int:
    """New tokens of a tile: each is there once for every query head of a group."""
    return max(1, tuning.queries // (heads // kv_heads))


def extend_attention(
    call: AttendCall,
    rows: Extends,
    out: Tensor,
    *,
    tile: int | None = None,
    key_ends: Tensor | None = None,
    tuning: ExtendTuning | None = None,
) -> None:
    """Causal attention of each row's new tokens over its cached prefix and themselves. WRITES out [T, H, D].

    The tiles of `rows` are `ExtendBlocks` of `tile` tokens, or of `tokens_of_tile`. k and v of the call are seen as
    the pool has them: rounded where it is of float8_e4m3fn. key_ends [T] int32 as in the oracle.
    """
    q, k, v, keys, values, table, rule, sinks = call
    assert k is not None and v is not None, "new keys and values are given"
    assert k.stride(0) == v.stride(0), "new keys and values are strided alike"
    heads, head_dim = q.shape[1:]
    kv_heads = k.shape[1]
    tuning = tuning or extend_tuning(head_dim, processor_of(q.device))
    group = heads // kv_heads
    most = tokens_of_tile(heads, kv_heads, tuning)
    parts = triton.cdiv(tile or most, most)
    _extend[(kv_heads, len(rows.tile_rows) * parts)](
        q, q.stride(0), k, v, k.stride(0), keys, values, keys.stride(0), table, table.stride(0),
        rows.tile_rows, rows.tile_starts, rows.rows, rows.firsts, rows.num_new, rows.seq_lens, out,
        q if sinks is None else sinks, rows.rows if key_ends is None else key_ends,
        rule.scale, rule.window or 0, rule.softcap or 1.0,
        GROUP=group, KV_HEADS=kv_heads, D=head_dim, D_PAD=padded(head_dim),
        TOKENS=triton.cdiv(tile or most, parts),
        LANES=max(tuning.queries, triton.next_power_of_2(group)),
        BLOCK=tuning.block, STAGES=tuning.stages, WINDOWED=rule.window is not None, CAPPED=rule.softcap is not None,
        SINKS=sinks is not None, AHEAD=key_ends is not None, PARTS=parts, LOG2_E=LOG2_E, INTERPRETED=INTERPRETED,
        **launched(tuning.warps, head_dim, key_ends is not None),
    )  # fmt: skip
