"""A step's inputs on the device, and steps that are prepared: recorded once, replayed without Python in between.

A step's tensors are placed anew, or filled into buffers that stay where they are, which a replay reads. Decides what is
copied to the device and back, which numbers of rows are prepared, how a step is padded to one of them, and which steps
are not replayed. What a device records is its own: on a CPU a list of native calls (step_tape.py). Padding rows compute
token 0 at position 0 into slot 0 of the padding row. Knows no model.
R rows of a batch, T new tokens, Q drawing rows, n rows of a prepared step, L longest context, V vocabulary.
"""

import logging
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ramet.runtime.arrays import Ints
from ramet.runtime.attention.base import ForwardInputs
from ramet.runtime.engine.batch import Batch
from ramet.runtime.sampling.epilogue import RowBuffer

log = logging.getLogger("ramet")

Forward = Callable[[ForwardInputs], Tensor]  # of decoding rows: [n, V] float32


class NotReplayable(Exception):
    """The forward pass does something that the device cannot record; the message names it."""


class Recorded(Protocol):
    """A forward pass that was recorded."""

    @property
    def logits(self) -> Tensor:
        """[n, V] float32 of the last run"""

    @property
    def replay(self) -> Callable[[], None]: ...


Record = Callable[[Callable[[], Tensor]], Recorded]  # run it once while recording; raises NotReplayable


def sizes_up_to(max_rows: int) -> list[int]:
    """Numbers of rows to prepare: each of the few, then ever wider steps, so that padding stays below a fifth."""
    sizes, step = [], 1
    rows = 1
    while rows < max_rows:
        sizes.append(rows)
        if rows >= 16:
            step = max(4, 1 << (rows.bit_length() - 4))
        rows += step
    return [*sizes, max_rows]


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


class StepBuffers:
    """The inputs of `size` decoding rows, always at the same place."""

    def __init__(self, size: int, table: Tensor) -> None:
        def zeros() -> Tensor:
            return torch.zeros(size, dtype=torch.int64, device=table.device)

        self.inputs = ForwardInputs(
            token_ids=zeros(),
            positions=zeros(),
            slots=zeros(),
            last_tokens=torch.arange(size, device=table.device),
            table=table,
            rows=np.zeros(size, np.int32),
            num_new=np.ones(size, np.int32),
            seq_lens=np.ones(size, np.int32),
            num_decode=size,
            shifts=np.zeros(size, np.int32),
            shifted=zeros(),
        )

    def fill(self, batch: Batch, row_buffer: RowBuffer) -> None:
        """WRITES the inputs, and the lengths of rows that the host knows. Every row of the batch decodes."""
        inputs, num = self.inputs, len(batch.rows)
        assert inputs.shifts is not None and inputs.shifted is not None
        ids, positions, slots, shifted = (
            column.numpy() for column in (inputs.token_ids, inputs.positions, inputs.slots, inputs.shifted)
        )
        for column, values in (
            (ids, batch.token_ids), (positions, batch.positions), (slots, batch.slots), (inputs.rows, batch.rows),
            (inputs.seq_lens, batch.seq_lens), (inputs.shifts, batch.shifts),
        ):  # fmt: skip
            column[:num], column[num:] = 0 if values is None else values, 0
        inputs.seq_lens[num:] = 1
        row_buffer.relay(batch.rows, batch.seq_lens, batch.relayed, ids, positions)
        np.subtract(positions, inputs.shifts, out=shifted)


class StepGraphs:
    """Prepared steps of up to `max_rows` rows, each recorded when it is first needed."""

    def __init__(self, forward: Forward, record: Record, table: Tensor, max_rows: int) -> None:
        self._forward, self._record, self._table = forward, record, table
        self._sizes = np.array(sizes_up_to(max_rows))
        self._prepared: dict[int, tuple[StepBuffers, Recorded]] = {}

    def covers(self, batch: Batch) -> bool:
        """Whether it is a step that can be prepared, and there are not too many rows."""
        return batch.only_decodes and 0 < len(batch.rows) <= self._limit

    @property
    def _limit(self) -> int:
        return int(self._sizes[-1]) if len(self._sizes) else 0

    def logits(self, batch: Batch, row_buffer: RowBuffer) -> Tensor | None:
        """[R, V] float32, good until the next call; None: this forward pass cannot be replayed. See `covers`."""
        size = int(self._sizes[np.searchsorted(self._sizes, len(batch.rows))])
        if size not in self._prepared:
            return self._prepare(size, batch, row_buffer)
        buffers, recorded = self._prepared[size]
        buffers.fill(batch, row_buffer)
        recorded.replay()
        return recorded.logits[: len(batch.rows)]

    def _prepare(self, size: int, batch: Batch, row_buffer: RowBuffer) -> Tensor | None:
        buffers = StepBuffers(size, self._table)
        buffers.fill(batch, row_buffer)
        try:
            recorded = self._record(lambda: self._forward(buffers.inputs))
        except NotReplayable as why:
            log.warning("steps are not prepared, which costs time: %s", why)
            self._sizes = self._sizes[:0]
            return None
        self._prepared[size] = buffers, recorded
        return recorded.logits[: len(batch.rows)]
