"""What a prepared decode step does before its forward pass, on a GPU, in Triton: its rows take in what changed.

A relayed row reads what the step before drew, which only the device knows; the slot of each row's new token goes into
the slot table. As kernels/cpu/draw.cpp's `relay`. Q rows of the step, M rows of the table, L longest context.
"""

from typing import NamedTuple

from torch import Tensor

from ramet.kernels.triton_there import tl, triton

BLOCK = 256


@triton.jit(do_not_specialize=["num"])  # type: ignore[untyped-decorator]
def _take_in(  # type: ignore[no-untyped-def]
    rows, relayed, seq_lens, position_offsets, new_slots, num, next_ids, lengths, ids, positions, rope_positions,
    table, table_stride, BLOCK: tl.constexpr,
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
    tl.store(rope_positions + at, position - tl.load(position_offsets + at, mask=valid, other=0), mask=valid)
    tl.store(
        table + row.to(tl.int64) * table_stride + position, tl.load(new_slots + at, mask=valid, other=0).to(tl.int32),
        mask=valid,
    )  # fmt: skip


class StepColumns(NamedTuple):
    """What the host says of each of the Q rows of a step."""

    rows: Tensor  # [Q] int32, of the table
    relayed: Tensor  # [Q] int32, not 0: the row reads what the step before drew
    seq_lens: Tensor  # [Q] int32, of rows that are not relayed
    position_offsets: Tensor  # [Q] int32
    slots: Tensor  # [Q] int64, of the new tokens


def take_in(
    columns: StepColumns,
    next_ids: Tensor,
    lengths: Tensor,
    ids: Tensor,
    positions: Tensor,
    rope_positions: Tensor,
    table: Tensor,
) -> None:
    """Rows that decode, no row of the table twice but the padding row.

    next_ids [M] int32 are read. WRITTEN are ids, positions, rope_positions [Q] int64, lengths [M] int32 of rows that
    are not relayed, and table [M, L] int32 at the new token.
    """
    num = len(columns.rows)
    _take_in[(triton.cdiv(num, BLOCK),)](
        columns.rows, columns.relayed, columns.seq_lens, columns.position_offsets, columns.slots, num, next_ids,
        lengths, ids, positions, rope_positions, table, table.stride(0), BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
