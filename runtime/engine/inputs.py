"""A step's inputs on the device: the slot table, and the tensors of one batch, placed anew for each step.

Decides what is copied to the device. Knows no model.
What some rows bring beside tokens is in row_inputs.py. L longest context.
"""

import numpy as np
import torch

from ramet.runtime.attention.base import ForwardInputs
from ramet.runtime.cache.host_view import host_view
from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.extras import SlotUpdate
from ramet.runtime.sampling.epilogue import RowBuffer, on_device


class SlotTable:
    """[num_rows + 1, L] int32 on the device: the slot of every position of every row; row 0 is padding, all zeros.

    A step writes what is new: the slots of its new tokens, and of cached prefixes that the scheduler names.
    """

    def __init__(self, num_rows: int, context_length: int, device: torch.device) -> None:
        self.device = torch.zeros((num_rows + 1, context_length), dtype=torch.int32, device=device)
        self._host = host_view(self.device)
        self._updates: list[SlotUpdate] = []

    def take(self, update: SlotUpdate) -> None:
        """Keep it for `update`, which writes all of a step at once."""
        self._updates.append(update)

    def update(self, batch: Batch, *, prepared: bool = False) -> None:
        """A prepared step of a GPU writes the slots of its new tokens itself."""
        updates, new_tokens = self._updates, self._host is not None or not prepared
        of_tokens = batch.rows if batch.num_decode == len(batch.rows) else np.repeat(batch.rows, batch.num_new)
        if self._host is not None and not updates:
            self._host[of_tokens, batch.positions] = batch.slots
            return
        if not new_tokens and not updates:
            return
        rows = [np.full(len(update.slots), update.row, np.int32) for update in updates]
        positions = [np.arange(u.start, u.start + len(u.slots), dtype=np.int32) for u in updates]
        slots = [update.slots for update in updates]
        self._updates = []
        if new_tokens:
            rows.append(of_tokens)
            positions.append(batch.positions)
            slots.append(batch.slots)
        at, where, values = (
            column[0] if len(column) == 1 else np.concatenate(column) for column in (rows, positions, slots)
        )
        if self._host is not None:
            self._host[at, where] = values
            return
        index = on_device(np.stack([at, where]).astype(np.int64), self.device.device)
        self.device.index_put_((index[0], index[1]), on_device(values, self.device.device))


def place(batch: Batch, table: SlotTable, row_buffer: RowBuffer, device: torch.device) -> ForwardInputs:
    """The tensors of one step; `table` must have taken in the batch. WRITES the lengths of rows the host knows."""
    last_tokens = np.cumsum(batch.num_new, dtype=np.int64)[batch.draws] - 1
    token_ids = on_device(batch.token_ids.astype(np.int64), device)
    positions = on_device(batch.positions.astype(np.int64), device)
    known_rows, known_lens = batch.rows, batch.seq_lens
    if len(batch.relayed):
        at = on_device(batch.relayed.astype(np.int64), device)
        rows = on_device(batch.rows[batch.relayed].astype(np.int64), device)
        token_ids[at] = row_buffer.next_ids[rows].long()
        positions[at] = row_buffer.lengths[rows].long() - 1
        known = np.ones(len(batch.rows), dtype=np.bool_)
        known[batch.relayed] = False
        known_rows, known_lens = batch.rows[known], batch.seq_lens[known]
    row_buffer.set_lengths(known_rows, known_lens)
    return ForwardInputs(
        token_ids=token_ids,
        positions=positions,
        slots=on_device(batch.slots.astype(np.int64), device),
        last_tokens=on_device(last_tokens, device),
        table=table.device,
        rows=batch.rows,
        num_new=batch.num_new,
        seq_lens=batch.seq_lens,
        num_decode=batch.num_decode,
    )
