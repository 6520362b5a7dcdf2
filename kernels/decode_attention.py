"""Decode attention on a GPU, in Triton: one query of each row against its keys and values in the pool (split-KV).

A row is cut into chunks by its own length alone, so what it computes does not depend on the batch (Flash-Decoding; Dao
et al. 2023). `plan_decode` writes the work of a step down on the device: an item for each chunk of each row. A fixed
number of programs share the items: no launch shape depends on the batch, and a CUDA graph replays them for any lengths.
Query heads of a group are one tile. A row's last chunk to end merges all of them by their log-sum-exp, in their order.
Chunks that many rows share are left to shared_attention.py, which comes before.
kernels/reference.py holds the oracle (`extend_attention` of one new token).
R rows, H query heads, G kv heads, D head size, S slots of the pool, L longest context.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ramet.kernels.attention_call import AttendCall
from ramet.kernels.shared_attention import SharedScratch
from ramet.kernels.triton_parts import INTERPRETED, LOG2_E, _capped, _merged, _tile, padded
from ramet.kernels.triton_there import tl, triton
from ramet.kernels.tuned import DecodeTuning, decode_tuning, processor_of

WHOLE = 512  # tokens of a row that is one chunk: nothing is to be merged
MIN_CHUNK = 256  # of a longer row, as long as SPLITS of them hold it
SPLITS = 16  # chunks of a row at most: a longer row has longer ones
ITEM = 4  # numbers of an item
DOUBLINGS = 16  # of a chunk
PLANNED_ROWS = 256  # that are read at once
CUTS = {"WHOLE": WHOLE, "MIN_CHUNK": MIN_CHUNK, "SPLITS": SPLITS, "DOUBLINGS": DOUBLINGS, "ROWS": PLANNED_ROWS}


@triton.jit(do_not_specialize=["num_rows"])  # type: ignore[untyped-decorator]
def _plan(rows, seq_lens, items, num_items, num_rows,  # type: ignore[no-untyped-def]
          WHOLE: tl.constexpr, MIN_CHUNK: tl.constexpr, SPLITS: tl.constexpr, DOUBLINGS: tl.constexpr,
          ROWS: tl.constexpr):  # fmt: skip
    """One program a row: where its items begin is what the rows before it have."""
    row = tl.program_id(0)
    first = tl.zeros((), tl.int32)
    total = tl.zeros((), tl.int32)
    bounds = (MIN_CHUNK * SPLITS) << tl.arange(0, DOUBLINGS).to(tl.int64)
    for start in range(0, num_rows, ROWS):
        at = start + tl.arange(0, ROWS)
        lengths = tl.load(seq_lens + at, mask=at < num_rows, other=0)
        chunks = MIN_CHUNK << tl.sum((lengths[:, None] > bounds[None, :]).to(tl.int32), axis=1)
        counts = tl.where(lengths <= WHOLE, 1, (lengths + chunks - 1) // chunks)
        counts = tl.where(at < num_rows, counts, 0)
        first += tl.sum(tl.where(at < row, counts, 0), axis=0)
        total += tl.sum(counts, axis=0)
    length, of_table = tl.load(seq_lens + row), tl.load(rows + row)
    chunk = MIN_CHUNK << tl.sum((length > bounds).to(tl.int32), axis=0)
    chunk = tl.where(length <= WHOLE, WHOLE, chunk)
    own = tl.maximum((length + chunk - 1) // chunk, 1)
    split = tl.arange(0, SPLITS)
    at = items + (first + split) * 4  # ITEM
    tl.store(at, row * SPLITS + split, mask=split < own)
    tl.store(at + 1, length + split * 0, mask=split < own)
    tl.store(at + 2, chunk + split * 0, mask=split < own)
    tl.store(at + 3, of_table + split * 0, mask=split < own)
    if row == 0:
        tl.store(num_items, total)


@triton.jit  # type: ignore[untyped-decorator]
def _decode(  # type: ignore[no-untyped-def]
    q, q_stride, keys, values, slot_stride, table, table_stride, items, num_items, partials, sums, arrived, out,
    shared, own_chunks, sinks, scale, window, cap,
    GROUP: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, LANES: tl.constexpr,
    BLOCK: tl.constexpr, STAGES: tl.constexpr, SPLITS: tl.constexpr, WINDOWED: tl.constexpr, CAPPED: tl.constexpr,
    SINKS: tl.constexpr, SHARING: tl.constexpr, LOG2_E: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Each program takes every so many-th of (item, kv head): a chunk of a row, for the query heads of a group.

    A row's newest token has a slot of its own, so of each row one chunk at least is its own and merges the others.
    `sinks` is any tensor without SINKS.
    """
    lanes, dims = tl.arange(0, LANES), tl.arange(0, D_PAD)
    in_head = dims < D
    total = tl.load(num_items) * KV_HEADS
    for work in range(tl.program_id(0), total, tl.num_programs(0)):
        item, head = items + work // KV_HEADS * 4, work % KV_HEADS  # ITEM
        which, length, chunk, of_table = tl.load(item), tl.load(item + 1), tl.load(item + 2), tl.load(item + 3)
        row, split = which // SPLITS, which % SPLITS
        oldest = tl.maximum(length - window, 0) if WINDOWED else 0
        first_split = oldest // chunk if WINDOWED else 0
        num_splits = tl.maximum((length + chunk - 1) // chunk, 1)
        is_own = split >= first_split
        expected = num_splits - first_split
        if SHARING:
            is_own = is_own & (tl.load(shared + which) == 0)
            expected = tl.load(own_chunks + row)
        if is_own:
            begin, end = tl.maximum(split * chunk, oldest), tl.minimum((split + 1) * chunk, length)
            heads = head * GROUP + lanes
            is_head = lanes < GROUP
            within = is_head[:, None] & in_head[None, :]
            queries = tl.load(
                q + row.to(tl.int64) * q_stride + heads[:, None] * D + dims[None, :], mask=within, other=0.0
            )
            if INTERPRETED:
                queries = queries.to(tl.float32)
            own = table + of_table.to(tl.int64) * table_stride
            best = tl.full((LANES,), float("-inf"), tl.float32)
            mass = tl.zeros((LANES,), tl.float32)
            sums_of = tl.zeros((LANES, D_PAD), tl.float32)
            for start in tl.range(begin, end, BLOCK, num_stages=STAGES):
                at = start + tl.arange(0, BLOCK)
                slots = tl.load(own + tl.minimum(at, end - 1)).to(tl.int64)  # past the end the last again
                places = slots[:, None] * slot_stride + head * D + dims[None, :]
                k = _tile(keys, places, in_head, at, D == D_PAD, True).to(queries.dtype)
                v = _tile(values, places, in_head, at, D == D_PAD, True).to(queries.dtype)
                scores = tl.dot(queries, tl.trans(k), input_precision="ieee") * scale
                if CAPPED:
                    scores = _capped(scores, cap)
                scores = tl.where((at < end)[None, :], scores * LOG2_E, float("-inf"))
                higher = tl.maximum(best, tl.max(scores, axis=1))
                base = tl.where(higher == float("-inf"), 0.0, higher)  # scores may pass what float32 holds
                weights = tl.exp2(scores - base[:, None])
                kept = tl.exp2(best - base)
                mass = mass * kept + tl.sum(weights, axis=1)
                sums_of = sums_of * kept[:, None]
                sums_of = tl.dot(weights.to(v.dtype), v, sums_of, input_precision="ieee")
                best = higher
            if SINKS:
                sink = tl.load(sinks + heads, mask=is_head, other=0.0).to(tl.float32) * LOG2_E
            is_whole = num_splits - first_split == 1
            total_mass = mass
            if SINKS and is_whole:
                total_mass = mass + tl.exp2(sink - best)
            result = tl.where(mass > 0, 1.0 / total_mass, 0.0)[:, None] * sums_of  # an empty row has zeros
            to = out + (row.to(tl.int64) * KV_HEADS * GROUP + heads[:, None]) * D + dims[None, :]
            if is_whole:
                tl.store(to, result.to(out.dtype.element_ty), mask=within)
            else:
                place = (row.to(tl.int64) * KV_HEADS + head) * SPLITS
                tl.store(sums + (place + split) * GROUP + lanes, best + tl.log2(mass), mask=is_head)
                parts = partials + ((place + split) * GROUP + lanes[:, None]) * D + dims[None, :]
                tl.store(parts, result, mask=within)
                tl.debug_barrier()  # of the program's threads: all have written before one says so
                before = tl.atomic_add(arrived + row * KV_HEADS + head, 1, sem="acq_rel")
                if before == expected - 1:
                    tl.store(arrived + row * KV_HEADS + head, 0)  # for the next layer
                    best, mass, sums_of = _merged(
                        partials, sums, place, first_split, num_splits, lanes, dims, is_head, within, GROUP, D, STAGES
                    )
                    if SINKS:
                        mass += tl.exp2(sink - best)
                    tl.store(to, (sums_of / mass[:, None]).to(out.dtype.element_ty), mask=within)


@dataclass(frozen=True, slots=True)
class DecodeScratch:
    """What decode attention of up to R rows writes on the way; `arrived` is zero between launches."""

    items: Tensor  # [R * SPLITS, ITEM] int32: row * SPLITS + chunk, the row's length, its chunks', its row of the table
    num_items: Tensor  # [1] int32
    partials: Tensor  # [R, G, SPLITS, H / G, D] float32
    sums: Tensor  # [R, G, SPLITS, H / G] float32, their log-sum-exp to the base 2
    arrived: Tensor  # [R, G] int32
    shared: SharedScratch

    @classmethod
    def of(cls, num_rows: int, heads: int, kv_heads: int, head_dim: int, device: torch.device) -> "DecodeScratch":
        def empty(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        group = heads // kv_heads
        return cls(
            empty(num_rows * SPLITS, ITEM), empty(1),
            empty(num_rows, kv_heads, SPLITS, group, head_dim, dtype=torch.float32),
            empty(num_rows, kv_heads, SPLITS, group, dtype=torch.float32),
            torch.zeros((num_rows, kv_heads), dtype=torch.int32, device=device),
            SharedScratch.of(num_rows, SPLITS, device),
        )  # fmt: skip

    def beside(self, heads: int, kv_heads: int, head_dim: int) -> "DecodeScratch":
        """For layers with such heads, of the same steps: it has the same plan."""
        if self.partials.shape[1:] == (kv_heads, SPLITS, heads // kv_heads, head_dim):
            return self
        own = DecodeScratch.of(len(self.partials), heads, kv_heads, head_dim, self.items.device)
        return replace(own, items=self.items, num_items=self.num_items, shared=self.shared)


def plan_decode(rows: Tensor, seq_lens: Tensor, scratch: DecodeScratch) -> None:
    """Once for a step, before its layers: rows [R] int32 of the table that decode, and their seq_lens [R] int32."""
    num = len(seq_lens)
    _plan[(num,)](rows, seq_lens, scratch.items, scratch.num_items, num, **CUTS, num_warps=4)


def decode_attention(
    call: AttendCall, out: Tensor, scratch: DecodeScratch, shares: bool = False, tuning: DecodeTuning | None = None
) -> None:
    """One query for each row, whose key is in the pool already. WRITES the first R of out [.., H, D] and the scratch.

    The first R queries of the call are the rows'. Which rows there are, and how long, `plan_decode` has written down
    before. `shares`: shared_attention has computed the chunks that are shared; without a window.
    """
    q, keys, table, rule, sinks = call.q, call.keys, call.table, call.rule, call.sinks
    heads, head_dim = q.shape[1:]
    kv_heads = keys.shape[1]
    tuning = tuning or decode_tuning(head_dim, processor_of(q.device), keys.dtype == torch.float8_e4m3fn)
    programs = tuning.programs(q.device)
    _decode[(programs,)](
        q, q.stride(0), keys, call.values, keys.stride(0), table, table.stride(0),
        scratch.items, scratch.num_items, scratch.partials, scratch.sums, scratch.arrived, out,
        scratch.shared.shared, scratch.shared.own_chunks, q if sinks is None else sinks,
        rule.scale, rule.window or 0, rule.softcap or 1.0,
        GROUP=heads // kv_heads, KV_HEADS=kv_heads, D=head_dim, D_PAD=padded(head_dim),
        LANES=padded(heads // kv_heads), BLOCK=tuning.block, STAGES=tuning.stages, SPLITS=SPLITS,
        WINDOWED=rule.window is not None, CAPPED=rule.softcap is not None, SINKS=sinks is not None,
        SHARING=shares, LOG2_E=LOG2_E, INTERPRETED=INTERPRETED, num_warps=tuning.warps,
    )  # fmt: skip
