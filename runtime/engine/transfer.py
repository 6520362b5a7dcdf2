"""What a step copies to the device and back: its tensors, the slot table that maps rows' positions, what it drew.

Decides what is copied to the device. Knows no model. R rows, T new tokens, Q drawing rows, L longest context.
"""

import numpy as np
import torch
from torch import Tensor

from ramet.runtime.arrays import Ints
from ramet.runtime.attention.base import ForwardInputs
from ramet.runtime.engine.batch import Batch
from ramet.runtime.sampling.epilogue import RowBuffer


class SlotTable:
    """[num_rows + 1, L] int32 on the device: the slot of every position of every row; row 0 is padding, all zeros.

    A step writes what is new: the slots of its new tokens, and of cached prefixes that the scheduler names.
    """

    def __init__(self, num_rows: int, context_length: int, device: torch.device) -> None:
        self.device = torch.zeros((num_rows + 1, context_length), dtype=torch.int32, device=device)

    def update(self, batch: Batch) -> None:
        updates = batch.slot_updates
        rows = [batch.rows if batch.num_decode == len(batch.rows) else np.repeat(batch.rows, batch.num_new)]
        rows += [np.full(len(update.slots), update.row, np.int32) for update in updates]
        positions = [batch.positions, *(np.arange(u.start, u.start + len(u.slots), dtype=np.int32) for u in updates)]
        slots = [batch.slots, *(update.slots for update in updates)]
        at, where, values = (
            column[0] if not updates else np.concatenate(column) for column in (rows, positions, slots)
        )
        if self.device.device.type == "cpu":
            self.device.numpy()[at, where] = values
            return
        index = torch.from_numpy(np.stack([at, where]).astype(np.int64)).to(self.device.device)
        self.device.index_put_((index[0], index[1]), torch.from_numpy(values).to(self.device.device))


def place(batch: Batch, table: SlotTable, row_buffer: RowBuffer, device: torch.device) -> ForwardInputs:
    """The tensors of one step; `table` must have taken in the batch. WRITES the lengths of rows the host knows."""
    last_tokens = np.cumsum(batch.num_new, dtype=np.int64)[batch.draws] - 1
    token_ids = torch.from_numpy(batch.token_ids.astype(np.int64)).to(device)
    positions = torch.from_numpy(batch.positions.astype(np.int64)).to(device)
    known_rows, known_lens = batch.rows, batch.seq_lens
    if len(batch.relayed):
        at = torch.from_numpy(batch.relayed.astype(np.int64)).to(device)
        rows = torch.from_numpy(batch.rows[batch.relayed].astype(np.int64)).to(device)
        token_ids[at] = row_buffer.next_ids[rows].long()
        positions[at] = row_buffer.lengths[rows].long() - 1
        known = np.ones(len(batch.rows), dtype=np.bool_)
        known[batch.relayed] = False
        known_rows, known_lens = batch.rows[known], batch.seq_lens[known]
    row_buffer.set_lengths(known_rows, known_lens)
    return ForwardInputs(
        token_ids=token_ids,
        positions=positions,
        slots=torch.from_numpy(batch.slots.astype(np.int64)).to(device),
        last_tokens=torch.from_numpy(last_tokens).to(device),
        table=table.device,
        rows=batch.rows,
        num_new=batch.num_new,
        seq_lens=batch.seq_lens,
        num_decode=batch.num_decode,
        embeds=tuple((each.first, torch.from_numpy(each.values.copy()).to(device)) for each in batch.embeds),
        shifts=batch.shifts,
        shifted=None if batch.shifts is None else positions - _of_tokens(batch, batch.shifts).to(device),
    )


def _of_tokens(batch: Batch, column: Ints) -> Tensor:
    """column [R] -> [T] int64: every token has the number of its row."""
    return torch.from_numpy(np.repeat(column, batch.num_new).astype(np.int64))


class Readback:
    """Copies of tensors, queued right behind the step that made them: waiting for them waits for no later step."""

    def __init__(self, *tensors: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        if tensors[0].device.type == "cpu":
            self._host = tensors
            return
        self._host = tuple(torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for t in tensors)
        for host, tensor in zip(self._host, tensors, strict=True):
            host.copy_(tensor, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record()

    def wait(self) -> tuple[Tensor, ...]:
        """The copies, in order, once the device has made them."""
        if self._event is not None:
            self._event.synchronize()
        return self._host
