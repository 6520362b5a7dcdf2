"""Decode attention to what many rows share, in Triton: keys and values of a shared prefix are read once for all.

Where the slots of a whole chunk are the same for MIN_SHARERS rows or more, they are multiplied with the queries of
many rows at once. Each row's result is a part of its sum as any other chunk's is, and decode_attention.py merges it
(Juravsky et al. 2024, Hydragen; Ye et al. 2025, FlashInfer). Which rows share which chunks is found on the device by
the slots themselves, once for a step, so a CUDA graph replays it for any rows. Chunks are cut as those of decode
attention. kernels/reference.py holds the oracle.
R rows, H query heads, G kv heads, D head size, S slots of the pool, L longest context.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ramet.kernels.attention_call import AttendCall
from ramet.kernels.triton_parts import INTERPRETED, LOG2_E, _take_in, _tile, padded
from ramet.kernels.triton_there import tl, triton
from ramet.kernels.tuned import ExtendTuning, processor_of, processors_of, shared_tuning

MIN_SHARERS = 8  # rows: fewer gain less than the launches take
ITEM = 5  # numbers of an item
COMPARED = 256  # slots at once
PER_PROCESSOR = 2  # programs


@triton.jit  # type: ignore[untyped-decorator]
def _chunk_of(lengths, WHOLE: tl.constexpr, MIN_CHUNK: tl.constexpr, SPLITS: tl.constexpr, DOUBLINGS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Tokens of a chunk of rows of such lengths [n]."""
    bounds = (MIN_CHUNK * SPLITS) << tl.arange(0, DOUBLINGS).to(tl.int64)
    chunks = MIN_CHUNK << tl.sum((lengths[:, None] > bounds[None, :]).to(tl.int32), axis=1)
    return tl.where(lengths <= WHOLE, WHOLE, chunks)


@triton.jit(do_not_specialize=["num_rows"])  # type: ignore[untyped-decorator]
def _lead(  # type: ignore[no-untyped-def]
    rows, seq_lens, table, table_stride, leaders, num_items, num_rows,
    WHOLE: tl.constexpr, MIN_CHUNK: tl.constexpr, SPLITS: tl.constexpr, DOUBLINGS: tl.constexpr, ROWS: tl.constexpr,
    COMPARED: tl.constexpr,
):  # fmt: skip
    """One program a row: of each of its chunks the first row that has the same, itself if no other; -1: not whole."""
    row = tl.program_id(0)
    length = tl.load(seq_lens + row)
    chunk = tl.max(_chunk_of(length + tl.zeros((2,), tl.int32), WHOLE, MIN_CHUNK, SPLITS, DOUBLINGS), axis=0)
    own = table + tl.load(rows + row).to(tl.int64) * table_stride
    for split in range(SPLITS):
        leader = -1
        if (length > WHOLE) & ((split + 1) * chunk <= length):
            first = tl.load(own + split * chunk)
            leader = row
            for start in range(0, num_rows, ROWS):
                at = start + tl.arange(0, ROWS)
                theirs = tl.load(seq_lens + at, mask=at < num_rows, other=0)
                alike = _chunk_of(theirs, WHOLE, MIN_CHUNK, SPLITS, DOUBLINGS) == chunk
                alike = alike & (theirs > WHOLE) & ((split + 1) * chunk <= theirs) & (at < num_rows)
                place = tl.load(rows + at, mask=alike, other=0).to(tl.int64) * table_stride + split * chunk
                same = alike & (tl.load(table + place, mask=alike, other=0) == first)
                leader = tl.minimum(leader, tl.min(tl.where(same, at, row), axis=0))
            if leader != row:
                before = table + tl.load(rows + leader).to(tl.int64) * table_stride
                differing = tl.zeros((), tl.int32)
                for start in range(split * chunk, (split + 1) * chunk, COMPARED):
                    at = start + tl.arange(0, COMPARED)
                    differing += tl.sum((tl.load(own + at) != tl.load(before + at)).to(tl.int32), axis=0)
                leader = tl.where(differing == 0, leader, row)
        tl.store(leaders + split * num_rows + row, leader)
    if row == 0:
        tl.store(num_items, 0)


@triton.jit(do_not_specialize=["num_rows"])  # type: ignore[untyped-decorator]
def _group(  # type: ignore[no-untyped-def]
    seq_lens, leaders, members, shared, own_chunks, items, num_items, num_rows,
    WHOLE: tl.constexpr, MIN_CHUNK: tl.constexpr, SPLITS: tl.constexpr, DOUBLINGS: tl.constexpr, ROWS: tl.constexpr,
    PER_TILE: tl.constexpr, MIN_NUM: tl.constexpr,
):  # fmt: skip
    """One program a row: which of its chunks are shared, and its place among those who share them."""
    row = tl.program_id(0)
    length = tl.load(seq_lens + row)
    chunk = tl.max(_chunk_of(length + tl.zeros((2,), tl.int32), WHOLE, MIN_CHUNK, SPLITS, DOUBLINGS), axis=0)
    own = tl.maximum((length + chunk - 1) // chunk, 1)
    for split in range(SPLITS):
        of_split = leaders + split * num_rows
        leader = tl.load(of_split + row)
        lower = tl.zeros((), tl.int32)
        rank = tl.zeros((), tl.int32)
        total = tl.zeros((), tl.int32)
        for start in range(0, num_rows, ROWS):
            at = start + tl.arange(0, ROWS)
            theirs = tl.load(of_split + at, mask=at < num_rows, other=-1)
            lower += tl.sum(((theirs >= 0) & (theirs < leader)).to(tl.int32), axis=0)
            rank += tl.sum(((theirs == leader) & (at < row)).to(tl.int32), axis=0)
            total += tl.sum(((theirs == leader) & (at < num_rows)).to(tl.int32), axis=0)
        is_shared = (leader >= 0) & (total >= MIN_NUM)
        tl.store(shared + row * SPLITS + split, is_shared.to(tl.int32))
        if is_shared:
            own -= 1
            tl.store(members + split * num_rows + lower + rank, row)
            if rank == 0:
                tiles = (total + PER_TILE - 1) // PER_TILE
                place = tl.atomic_add(num_items, tiles)
                for tile in range(tiles):
                    item = items + (place + tile) * 5
                    tl.store(item, split)
                    tl.store(item + 1, lower + tile * PER_TILE)
                    tl.store(item + 2, tl.minimum(total - tile * PER_TILE, PER_TILE))
                    tl.store(item + 3, chunk)
                    tl.store(item + 4, row)
    tl.store(own_chunks + row, own)


@triton.jit(do_not_specialize=["num_rows"])  # type: ignore[untyped-decorator]
def _shared(  # type: ignore[no-untyped-def]
    q, q_stride, keys, values, slot_stride, table, table_stride, rows, members, items, num_items, partials, sums,
    scale, cap, num_rows,
    GROUP: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, LANES: tl.constexpr,
    BLOCK: tl.constexpr, STAGES: tl.constexpr, SPLITS: tl.constexpr, CAPPED: tl.constexpr, LOG2_E: tl.constexpr,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    """One chunk for some of the rows that share it, one kv head: as `_decode` of one row, and never masked."""
    lanes, dims, cols = tl.arange(0, LANES), tl.arange(0, D_PAD), tl.arange(0, BLOCK)
    in_head = dims < D
    total = tl.load(num_items) * KV_HEADS
    for work in range(tl.program_id(0), total, tl.num_programs(0)):
        item, head = items + work // KV_HEADS * 5, work % KV_HEADS  # ITEM
        split, first, count = tl.load(item), tl.load(item + 1), tl.load(item + 2)
        chunk, leader = tl.load(item + 3), tl.load(item + 4)
        is_lane = lanes < count * GROUP
        within = is_lane[:, None] & in_head[None, :]
        row = tl.load(members + split * num_rows + first + lanes // GROUP, mask=is_lane, other=0).to(tl.int64)
        of_group = lanes % GROUP
        queries = tl.load(
            q + row[:, None] * q_stride + (head * GROUP + of_group)[:, None] * D + dims[None, :], mask=within, other=0.0
        )
        if INTERPRETED:
            queries = queries.to(tl.float32)
        own = table + tl.load(rows + leader).to(tl.int64) * table_stride
        best = tl.full((LANES,), float("-inf"), tl.float32)
        mass = tl.zeros((LANES,), tl.float32)
        sums_of = tl.zeros((LANES, D_PAD), tl.float32)
        for start in tl.range(split * chunk, (split + 1) * chunk, BLOCK, num_stages=STAGES):
            slots = tl.load(own + start + cols).to(tl.int64)
            places = slots[:, None] * slot_stride + head * D + dims[None, :]
            k = _tile(keys, places, in_head, cols, D == D_PAD, True).to(queries.dtype)
            v = _tile(values, places, in_head, cols, D == D_PAD, True).to(queries.dtype)
            best, mass, sums_of = _take_in(
                queries, k, v, in_head, best, mass, sums_of, scale, cap, False, CAPPED, LOG2_E
            )
        place = ((row * KV_HEADS + head) * SPLITS + split) * GROUP + of_group
        tl.store(sums + place, best + tl.log2(mass), mask=is_lane)
        result = tl.where(mass > 0, 1.0 / mass, 0.0)[:, None] * sums_of
        tl.store(partials + place[:, None] * D + dims[None, :], result, mask=within)


@dataclass(frozen=True, slots=True)
class SharedScratch:
    """What is found of up to R rows: who shares which chunk. Chunks are SPLITS a row at most."""

    leaders: Tensor  # [SPLITS, R] int32, the first row that has the same chunk
    members: Tensor  # [SPLITS, R] int32, rows of shared chunks, those of the same one side by side
    shared: Tensor  # [R, SPLITS] int32: 1 where a chunk is
    own_chunks: Tensor  # [R] int32, chunks that are not
    items: Tensor  # [R * SPLITS, ITEM] int32: chunk, first of the members, their number, tokens of the chunk, a row
    num_items: Tensor  # [1] int32

    @classmethod
    def of(cls, num_rows: int, splits: int, device: torch.device) -> "SharedScratch":
        def empty(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=torch.int32, device=device)

        return cls(
            empty(splits, num_rows), empty(splits, num_rows), empty(num_rows, splits), empty(num_rows),
            empty(num_rows * splits, ITEM), empty(1),
        )  # fmt: skip


def plan_shared(
    rows: Tensor, seq_lens: Tensor, table: Tensor, scratch: SharedScratch, cuts: dict[str, int], per_tile: int
) -> None:
    """Once for a step: which chunks of the rows [R] int32 of the table [.., L] int32 are shared. WRITES the scratch.

    `cuts` are decode attention's constants; `per_tile` rows are multiplied at once.
    """
    num = len(seq_lens)
    _lead[(num,)](
        rows, seq_lens, table, table.stride(0), scratch.leaders, scratch.num_items, num, **cuts, COMPARED=COMPARED,
        num_warps=4,
    )  # fmt: skip
    _group[(num,)](
        seq_lens, scratch.leaders, scratch.members, scratch.shared, scratch.own_chunks, scratch.items,
        scratch.num_items, num, **cuts, PER_TILE=per_tile, MIN_NUM=MIN_SHARERS, num_warps=4,
    )  # fmt: skip


def rows_of_tile(heads: int, kv_heads: int, tuning: ExtendTuning) -> int:
    """Each is there once for every query head of a group."""
    return max(1, tuning.queries // (heads // kv_heads))


def shared_attention(
    call: AttendCall,
    rows: Tensor,
    scratch: SharedScratch,
    partials: Tensor,
    sums: Tensor,
    tuning: ExtendTuning | None = None,
) -> None:
    """The parts of the rows' results that shared chunks are. WRITES partials and sums, of decode attention's scratch.

    rows [R] int32 of the table: the first R queries of the call are theirs; `plan_shared` comes before.
    Tiles are those of kernels/tuned.py: of most head sizes as extends have them.
    """
    q, keys, table, rule = call.q, call.keys, call.table, call.rule
    heads, head_dim = q.shape[1:]
    kv_heads = keys.shape[1]
    tuning = tuning or shared_tuning(head_dim, processor_of(q.device))
    group, splits = heads // kv_heads, partials.shape[2]
    _shared[(PER_PROCESSOR * processors_of(q.device),)](
        q, q.stride(0), keys, call.values, keys.stride(0), table, table.stride(0), rows, scratch.members,
        scratch.items, scratch.num_items, partials, sums, rule.scale, rule.softcap or 1.0, len(rows),
        GROUP=group, KV_HEADS=kv_heads, D=head_dim, D_PAD=padded(head_dim),
        LANES=max(tuning.queries, triton.next_power_of_2(group)), BLOCK=tuning.block, STAGES=tuning.stages,
        SPLITS=splits, CAPPED=rule.softcap is not None, LOG2_E=LOG2_E, INTERPRETED=INTERPRETED,
        num_warps=tuning.warps,
    )  # fmt: skip
