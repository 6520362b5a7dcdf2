"""Attention to latents on a GPU, in Triton (DeepSeek-V2, 2024): one key and one value of a token for all heads.

A key is a latent and a rotated part behind it, and its value is the latent: latents are read once for both, and for all
query heads of a tile. Rows that decode are planned, cut and merged as in decode_attention.py, so what a row gets
depends on no other row, and a CUDA graph replays them for any lengths. Rows that extend are cut into tiles as in
extend_attention.py; latents of their new tokens are in the pool by then, and all are read there.
kernels/reference_latent.py holds the oracle.
R rows, T new tokens, H heads, L numbers of a latent, P of a rotated key, S slots of the pool, K longest context.
"""

import torch
from torch import Tensor

from ramet.kernels.attention_call import Extends
from ramet.kernels.decode_attention import SPLITS, DecodeScratch
from ramet.kernels.extend_attention import tokens_of_tile
from ramet.kernels.triton_parts import INTERPRETED, LOG2_E, _merged, _tile, _weigh, padded
from ramet.kernels.triton_there import tl, triton
from ramet.kernels.tuned import (
    DecodeTuning,
    ExtendTuning,
    latent_decode_tuning,
    latent_extend_tuning,
    launched,
    processor_of,
)

LANES, WIDE_LANES = 16, 32  # of a tile of heads of one token


@triton.jit  # type: ignore[untyped-decorator]
def _part(x, places, numbers, within, INTERPRETED: tl.constexpr):  # type: ignore[no-untyped-def]
    """One of the two parts of a tile's queries."""
    part = tl.load(x + places[:, None] + numbers[None, :], mask=within, other=0.0)
    if INTERPRETED:
        part = part.to(tl.float32)
    return part


@triton.jit  # type: ignore[untyped-decorator]
def _take_in_latents(  # type: ignore[no-untyped-def]
    queries, turned, keys, places, in_latent, in_key, dims, of_key, hidden, best, mass, sums, scale,
    L: tl.constexpr, WHOLE: tl.constexpr, MASKED: tl.constexpr, LOG2_E: tl.constexpr,
):  # fmt: skip
    """A tile of latents more, which lie at `places`."""
    latents = _tile(keys, places[:, None] + dims[None, :], in_latent, places, WHOLE, True).to(queries.dtype)
    rotated = _tile(keys + L, places[:, None] + of_key[None, :], in_key, places, WHOLE, True).to(queries.dtype)
    scores = tl.dot(queries, tl.trans(latents), input_precision="ieee")
    scores = tl.dot(turned, tl.trans(rotated), scores, input_precision="ieee") * scale
    return _weigh(scores, latents, hidden, best, mass, sums, MASKED, LOG2_E)


@triton.jit  # type: ignore[untyped-decorator]
def _decode_latents(  # type: ignore[no-untyped-def]
    q, q_stride, q_head, turned, turned_stride, turned_head, keys, slot_stride, table, table_stride,
    items, num_items, partials, sums, arrived, out, scale,
    HEADS: tl.constexpr, TILE: tl.constexpr, LANES: tl.constexpr, L: tl.constexpr, L_PAD: tl.constexpr,
    P: tl.constexpr, P_PAD: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr, SPLITS: tl.constexpr,
    LOG2_E: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Each program takes every so many-th of (item, tile of heads): a chunk of a row, for TILE heads."""
    TILES: tl.constexpr = (HEADS + TILE - 1) // TILE
    WHOLE: tl.constexpr = (L == L_PAD) and (P == P_PAD)
    lanes, dims, of_key, cols = tl.arange(0, LANES), tl.arange(0, L_PAD), tl.arange(0, P_PAD), tl.arange(0, BLOCK)
    in_latent, in_key = dims < L, of_key < P
    total = tl.load(num_items) * TILES
    for work in range(tl.program_id(0), total, tl.num_programs(0)):
        item, tile = items + work // TILES * 4, work % TILES  # ITEM
        which, length, chunk, of_table = tl.load(item), tl.load(item + 1), tl.load(item + 2), tl.load(item + 3)
        row, split = which // SPLITS, which % SPLITS
        num_splits = tl.maximum((length + chunk - 1) // chunk, 1)
        begin, end = split * chunk, tl.minimum((split + 1) * chunk, length)
        heads, at = (tile * TILE + lanes).to(tl.int64), row.to(tl.int64)
        is_head = (lanes < TILE) & (heads < HEADS)
        within = is_head[:, None] & in_latent[None, :]
        queries = _part(q, at * q_stride + heads * q_head, dims, within, INTERPRETED)
        key_places = at * turned_stride + heads * turned_head
        key_queries = _part(turned, key_places, of_key, is_head[:, None] & in_key[None, :], INTERPRETED)
        own = table + of_table.to(tl.int64) * table_stride
        best = tl.full((LANES,), float("-inf"), tl.float32)
        mass = tl.zeros((LANES,), tl.float32)
        sums_of = tl.zeros((LANES, L_PAD), tl.float32)
        for start in tl.range(begin, end, BLOCK, num_stages=STAGES):
            key = start + cols
            places = tl.load(own + tl.minimum(key, end - 1)).to(tl.int64) * slot_stride  # past the end the last again
            best, mass, sums_of = _take_in_latents(
                queries, key_queries, keys, places, in_latent, in_key, dims, of_key, (key >= end)[None, :],
                best, mass, sums_of, scale, L, WHOLE, True, LOG2_E,
            )  # fmt: skip
        result = tl.where(mass > 0, 1.0 / mass, 0.0)[:, None] * sums_of  # an empty row has zeros
        to = out + (at * HEADS + heads[:, None]) * L + dims[None, :]
        if num_splits == 1:
            tl.store(to, result.to(out.dtype.element_ty), mask=within)
        else:
            place = (at * TILES + tile) * SPLITS
            tl.store(sums + (place + split) * TILE + lanes, best + tl.log2(mass), mask=is_head)
            parts = partials + ((place + split) * TILE + lanes[:, None]) * L + dims[None, :]
            tl.store(parts, result, mask=within)
            tl.debug_barrier()  # of the program's threads: all have written before one says so
            before = tl.atomic_add(arrived + row * TILES + tile, 1, sem="acq_rel")
            if before == num_splits - 1:
                tl.store(arrived + row * TILES + tile, 0)  # for the next layer
                best, mass, sums_of = _merged(
                    partials, sums, place, 0, num_splits, lanes, dims, is_head, within, TILE, L, 1
                )
                tl.store(to, (sums_of / mass[:, None]).to(out.dtype.element_ty), mask=within)


@triton.jit  # type: ignore[untyped-decorator]
def _extend_latents(  # type: ignore[no-untyped-def]
    q, q_stride, q_head, turned, turned_stride, turned_head, keys, slot_stride, table, table_stride,
    tile_rows, tile_starts, rows, firsts, num_new, seq_lens, out, scale,
    HEADS: tl.constexpr, TILE: tl.constexpr, TOKENS: tl.constexpr, LANES: tl.constexpr, L: tl.constexpr,
    L_PAD: tl.constexpr, P: tl.constexpr, P_PAD: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    LOG2_E: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """A program: TILE heads of TOKENS tokens of a row. Keys before `whole` are not masked: every query sees them."""
    TILES: tl.constexpr = (HEADS + TILE - 1) // TILE
    WHOLE: tl.constexpr = (L == L_PAD) and (P == P_PAD)
    block, tile = tl.program_id(0) // TILES, tl.program_id(0) % TILES
    row, start = tl.load(tile_rows + block), tl.load(tile_starts + block)
    first, new, length = tl.load(firsts + row), tl.load(num_new + row), tl.load(seq_lens + row)
    if start >= new:  # the tile is one that a graph has beside those of its step
        return
    lanes, dims, of_key, cols = tl.arange(0, LANES), tl.arange(0, L_PAD), tl.arange(0, P_PAD), tl.arange(0, BLOCK)
    in_latent, in_key = dims < L, of_key < P
    cached = length - new
    token = start + lanes // TILE  # of the row's new ones
    heads = (tile * TILE + lanes % TILE).to(tl.int64)
    is_lane = (lanes < TOKENS * TILE) & (token < new) & (heads < HEADS)
    within = is_lane[:, None] & in_latent[None, :]
    position, at = cached + token, (first + token).to(tl.int64)
    queries = _part(q, at * q_stride + heads * q_head, dims, within, INTERPRETED)
    key_places = at * turned_stride + heads * turned_head
    key_queries = _part(turned, key_places, of_key, is_lane[:, None] & in_key[None, :], INTERPRETED)
    best = tl.full((LANES,), float("-inf"), tl.float32)
    mass = tl.zeros((LANES,), tl.float32)
    sums = tl.zeros((LANES, L_PAD), tl.float32)
    own = table + tl.load(rows + row).to(tl.int64) * table_stride
    end = cached + tl.minimum(start + TOKENS, new)  # keys before it are seen by some query
    whole = (cached + start + 1) // BLOCK * BLOCK
    for key_start in tl.range(0, whole, BLOCK, num_stages=STAGES):
        places = tl.load(own + key_start + cols).to(tl.int64) * slot_stride
        best, mass, sums = _take_in_latents(
            queries, key_queries, keys, places, in_latent, in_key, dims, of_key, in_key[None, :],
            best, mass, sums, scale, L, WHOLE, False, LOG2_E,
        )  # fmt: skip
    for key_start in tl.range(whole, end, BLOCK, num_stages=STAGES):
        key = key_start + cols
        places = tl.load(own + tl.minimum(key, end - 1)).to(tl.int64) * slot_stride
        best, mass, sums = _take_in_latents(
            queries, key_queries, keys, places, in_latent, in_key, dims, of_key, key[None, :] > position[:, None],
            best, mass, sums, scale, L, WHOLE, True, LOG2_E,
        )  # fmt: skip
    to = out + (at[:, None] * HEADS + heads[:, None]) * L + dims[None, :]
    tl.store(to, (sums / mass[:, None]).to(out.dtype.element_ty), mask=within)


def heads_of_tile(heads: int, lanes: int) -> int:
    """Heads of a tile, where all H lie in as few equal tiles of so many lanes as hold them."""
    return triton.cdiv(heads, triton.cdiv(heads, lanes))


def latent_lanes(heads: int, itemsize: int) -> int:
    """Lanes of a tile where rows decode, over a pool of numbers of so many bytes."""
    return WIDE_LANES if heads > LANES and itemsize < 4 else LANES


def latent_scratch(num_rows: int, heads: int, latent: int, dtype: torch.dtype, device: torch.device) -> DecodeScratch:
    """A tile of heads is to decode attention's plan what a kv head with its group is."""
    tile = heads_of_tile(heads, latent_lanes(heads, dtype.itemsize))
    tiles = triton.cdiv(heads, tile)
    return DecodeScratch.of(num_rows, tiles * tile, tiles, latent, device)


def tokens_of_latent_tile(heads: int, tuning: ExtendTuning) -> int:
    """New tokens of a tile of a row that extends."""
    return tokens_of_tile(heads_of_tile(heads, tuning.queries), 1, tuning)


def decode_latents(
    q: Tensor,
    turned: Tensor,
    keys: Tensor,
    table: Tensor,
    out: Tensor,
    scratch: DecodeScratch,
    scale: float,
    tuning: DecodeTuning | None = None,
) -> None:
    """One query of H heads for each row, whose latent is in the pool already. WRITES out [R, H, L] and the scratch.

    q [R, H, L] and turned [R, H, P], the two parts of what meets keys [S, 1, L + P] of the same dtype; tokens and heads
    may be strided. table [rows of the table, K] int32: the slot of every position. Which rows there are, and how long,
    `plan_decode` has written down before into the same scratch (`latent_scratch`).
    """
    heads = q.shape[1]
    lanes = latent_lanes(heads, keys.dtype.itemsize)
    tuning = tuning or latent_decode_tuning(lanes, keys.dtype.itemsize, processor_of(q.device))
    _decode_latents[(tuning.programs(q.device),)](
        *_operands(q, turned, keys, table), scratch.items, scratch.num_items, scratch.partials, scratch.sums,
        scratch.arrived, out, scale,
        **_sizes(q, turned), TILE=heads_of_tile(heads, lanes), LANES=lanes, BLOCK=tuning.block, STAGES=tuning.stages,
        SPLITS=SPLITS, LOG2_E=LOG2_E, INTERPRETED=INTERPRETED, **launched(tuning.warps, q.shape[2]),
    )  # fmt: skip


def extend_latents(
    q: Tensor,
    turned: Tensor,
    keys: Tensor,
    table: Tensor,
    rows: Extends,
    out: Tensor,
    scale: float,
    tuning: ExtendTuning | None = None,
) -> None:
    """Causal attention of each row's new tokens to all latents of the row. WRITES out [T, H, L].

    q [T, H, L], turned [T, H, P], keys and table as `decode_latents` has them; the tiles of `rows` are `ExtendBlocks`
    of `tokens_of_latent_tile`.
    """
    heads = q.shape[1]
    tuning = tuning or latent_extend_tuning(keys.dtype.itemsize, processor_of(q.device))
    tile = heads_of_tile(heads, tuning.queries)
    _extend_latents[(len(rows.tile_rows) * triton.cdiv(heads, tile),)](
        *_operands(q, turned, keys, table), rows.tile_rows, rows.tile_starts, rows.rows, rows.firsts, rows.num_new,
        rows.seq_lens, out, scale,
        **_sizes(q, turned), TILE=tile, TOKENS=tokens_of_latent_tile(heads, tuning), LANES=tuning.queries,
        BLOCK=tuning.block, STAGES=tuning.stages, LOG2_E=LOG2_E, INTERPRETED=INTERPRETED,
        **launched(tuning.warps, q.shape[2]),
    )  # fmt: skip


def _operands(q: Tensor, turned: Tensor, keys: Tensor, table: Tensor) -> tuple[Tensor | int, ...]:
    assert q.stride(2) == turned.stride(2) == 1, "numbers of a head lie side by side"
    parts = (q, q.stride(0), q.stride(1)), (turned, turned.stride(0), turned.stride(1))
    return *parts[0], *parts[1], keys, keys.stride(0), table, table.stride(0)


def _sizes(q: Tensor, turned: Tensor) -> dict[str, int]:
    latent, rotated = q.shape[2], turned.shape[2]
    return {"HEADS": q.shape[1], "L": latent, "L_PAD": padded(latent), "P": rotated, "P_PAD": padded(rotated)}
