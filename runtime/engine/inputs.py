"""From a host Batch to the tensors of a step, and the table that maps every row's positions to slots.

Decides what is copied to the device. Knows no model. R rows, T new tokens, Q drawing rows, L longest context.
"""

import numpy as np
import torch

from ramet.runtime.attention.base import ForwardInputs
from ramet.runtime.engine.batch import Batch


class SlotTable:
    """[max_running + 1, L] int32: the slot of every position of every row; row 0 is padding and stays zero.

    The host writes it before each step; on cpu the device tensor is the same memory.
    """

    def __init__(self, max_running: int, context_length: int, device: torch.device) -> None:
        self.host = np.zeros((max_running + 1, context_length), dtype=np.int32)
        self._shared = torch.from_numpy(self.host)
        self.device = self._shared if device.type == "cpu" else self._shared.to(device)

    def update(self, batch: Batch) -> None:
        """Take in the slots of cached prefixes and of the step's new tokens."""
        for fill in batch.slot_updates:
            self.host[fill.row, fill.start : fill.start + len(fill.slots)] = fill.slots
        rows = batch.rows if batch.num_decode == len(batch.rows) else np.repeat(batch.rows, batch.num_new)
        self.host[rows, batch.positions] = batch.slots
        if self.device is not self._shared:
            used = torch.from_numpy(np.union1d(batch.rows, [f.row for f in batch.slot_updates]).astype(np.int64))
            self.device[used.to(self.device.device)] = self._shared[used].to(self.device.device)


def place(batch: Batch, table: SlotTable, device: torch.device) -> ForwardInputs:
    """The tensors of one step; `table` must have taken in the batch."""
    last_tokens = np.cumsum(batch.num_new, dtype=np.int64)[batch.draws] - 1
    return ForwardInputs(
        token_ids=torch.from_numpy(batch.token_ids.astype(np.int64)).to(device),
        positions=torch.from_numpy(batch.positions.astype(np.int64)).to(device),
        slots=torch.from_numpy(batch.slots.astype(np.int64)).to(device),
        last_tokens=torch.from_numpy(last_tokens).to(device),
        table=table.device,
        rows=batch.rows,
        num_new=batch.num_new,
        seq_lens=batch.seq_lens,
        num_decode=batch.num_decode,
        embeds=tuple((each.first, torch.from_numpy(each.values.copy()).to(device)) for each in batch.embeds),
    )
