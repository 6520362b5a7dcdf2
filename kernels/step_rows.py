"""What a prepared decode step does before its forward pass, on a GPU, in Triton: its rows take in what changed.

A relayed row reads what the step before drew, which only the device knows; the slot of each row's new token goes into
the slot table. As kernels/cpu/draw.cpp's `relay`. Q rows of the step, M rows of the table, L longest context.
"""

from torch import Tensor

from ramet.kernels.triton_there import tl, triton

BLOCK = 256


@triton.jit(do_not_specialize=["num"])  # type: ignore[untyped-decorator]
def _take_in(  # type: ignore[no-untyped-def]
    rows, relayed, seq_lens, shifts, new_slots, num, next_ids, lengths, ids, positions, shifted, table, table_stride,
    BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = at < num
    row = tl.load(rows + at, mask=valid, other=0)
    is_relayed = valid & (tl.load(relayed + at, mask=valid, other=0) != 0)
    tl.store(lengths + row, tl.load(seq_lens + at, mask=valid, other=0), mask=valid & ~is_relayed)
    tl.store(ids + at, tl.load(next_ids + row, mask=is_relayed, other=0).to(tl.int64), mask=is_relayed)
    position = tl.load(positions + at, mask=valid, other=0)
    position = tl.where(is_relayed, tl.load(lengths + row, mask=is_relayed, other=1).to(tl.int64) - 1, position)
    tl.store(positions + at, position, mask=is_relayed)
    tl.store(shifted + at, position - tl.load(shifts + at, mask=valid, other=0), mask=valid)
    tl.store(
        table + row.to(tl.int64) * table_stride + position, tl.load(new_slots + at, mask=valid, other=0).to(tl.int32),
        mask=valid,
    )  # fmt: skip


def take_in(
    rows: Tensor,
    relayed: Tensor,
    seq_lens: Tensor,
    shifts: Tensor,
    slots: Tensor,
    next_ids: Tensor,
    lengths: Tensor,
    ids: Tensor,
    positions: Tensor,
    shifted: Tensor,
    table: Tensor,
) -> None:
    """Rows that decode, no row of the table twice but the padding row.

    rows, relayed, seq_lens, shifts [Q] int32, slots [Q] int64 are read. WRITTEN are ids, positions, shifted [Q] int64,
    lengths [M] int32 of rows that are not relayed, and table [M, L] int32 at the new token. next_ids [M] int32.
    """
    num = len(rows)
    _take_in[(triton.cdiv(num, BLOCK),)](
        rows, relayed, seq_lens, shifts, slots, num, next_ids, lengths, ids, positions, shifted, table,
        table.stride(0), BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
