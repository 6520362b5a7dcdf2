"""A step's inputs on the device, and steps that are prepared: recorded once, replayed without Python in between.

A step's tensors are placed anew, or filled into buffers that stay where they are, which a replay reads. Decides what is
copied to the device and back, which numbers of rows are prepared, how a step is padded to one of them, and which steps
are not replayed. What a device records is its own: on a CPU a list of native calls (step_tape.py). Padding rows compute
token 0 at position 0 into slot 0 of the padding row. Knows no model.
R rows of a batch, T new tokens, Q drawing rows, n rows of a prepared step, L longest context, V vocabulary.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ramet.runtime.arrays import Ints
from ramet.runtime.attention.base import ForwardInputs
from ramet.runtime.engine.batch import Batch
from ramet.runtime.sampling.columns import SamplingColumns
from ramet.runtime.sampling.epilogue import RowBuffer

log = logging.getLogger("ramet")

Forward = Callable[[ForwardInputs], Tensor]  # of decoding rows: [n, V] float32
Draw = Callable[[Tensor, "StepDraws"], tuple[Tensor, Tensor]]  # logits [n, V] -> tokens and finite [n], as a kernel's


class NotReplayable(Exception):
    """The forward pass does something that the device cannot record; the message names it."""


class Replayed(Protocol):
    """What was recorded, to be run again."""

    @property
    def begin(self) -> Callable[[], None]:
        """Runs it while the host goes on."""

    @property
    def join(self) -> Callable[[], None]:
        """Waits for what was begun, if anything was, on the thread that began it."""


class RecordedStep(Protocol):
    """A forward pass and a draw that were recorded. What they return is written again by each replay."""

    @property
    def logits(self) -> Tensor:
        """[n, V] float32"""

    @property
    def tokens(self) -> Tensor:
        """[n] int64"""

    @property
    def finite(self) -> Tensor:
        """[n] bool"""

    @property
    def forward(self) -> Replayed: ...

    @property
    def whole(self) -> Replayed:
        """The forward pass and the draw."""


class Record(Protocol):
    """Runs a forward pass and a draw once while recording. Raises NotReplayable."""

    def __call__(
        self, forward: Callable[[], Tensor], draw: Callable[[Tensor], tuple[Tensor, Tensor]]
    ) -> RecordedStep: ...


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
        self._host = self.device.numpy() if device.type == "cpu" else None

    def update(self, batch: Batch) -> None:
        updates = batch.slot_updates
        if self._host is not None and batch.only_decodes and not updates:
            self._host[batch.rows, batch.positions] = batch.slots
            return
        rows = [batch.rows if batch.num_decode == len(batch.rows) else np.repeat(batch.rows, batch.num_new)]
        rows += [np.full(len(update.slots), update.row, np.int32) for update in updates]
        positions = [batch.positions, *(np.arange(u.start, u.start + len(u.slots), dtype=np.int32) for u in updates)]
        slots = [batch.slots, *(update.slots for update in updates)]
        at, where, values = (
            column[0] if not updates else np.concatenate(column) for column in (rows, positions, slots)
        )
        if self._host is not None:
            self._host[at, where] = values
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

        ids, positions, slots, shifted = zeros(), zeros(), zeros(), zeros()
        self._shifts, self._is_shifted = np.zeros(size, np.int32), False
        self.inputs = ForwardInputs(
            token_ids=ids,
            positions=positions,
            slots=slots,
            last_tokens=torch.arange(size, device=table.device),
            table=table,
            rows=np.zeros(size, np.int32),
            num_new=np.ones(size, np.int32),
            seq_lens=np.ones(size, np.int32),
            num_decode=size,
            shifts=self._shifts,
            shifted=shifted,
        )
        self._host = ids.numpy(), positions.numpy(), slots.numpy(), shifted.numpy()

    def fill(self, batch: Batch, row_buffer: RowBuffer) -> None:
        """WRITES the inputs, and the lengths of rows that the host knows. Every row of the batch decodes."""
        inputs, num = self.inputs, len(batch.rows)
        ids, positions, slots, shifted = self._host
        is_padded = num < len(ids)
        for column, values in (
            (ids, batch.token_ids), (positions, batch.positions), (slots, batch.slots), (inputs.rows, batch.rows),
            (inputs.seq_lens, batch.seq_lens),
        ):  # fmt: skip
            column[:num] = values
            if is_padded:
                column[num:] = 0
        if is_padded:
            inputs.seq_lens[num:] = 1
        row_buffer.relay(batch.rows, batch.seq_lens, batch.relayed, ids, positions)
        if batch.shifts is not None or self._is_shifted:
            self._is_shifted = batch.shifts is not None
            self._shifts[:num], self._shifts[num:] = 0 if batch.shifts is None else batch.shifts, 0
        np.subtract(positions, self._shifts, out=shifted)


class StepDraws:
    """How `size` decoding rows sample, always at the same place. The padding row takes its best token."""

    def __init__(self, size: int) -> None:
        self._seen = SamplingColumns.greedy(size)
        self._rows_seen = np.zeros(size, np.int32)
        self._columns = [column.copy() for column in _drawn_by(self._seen)]
        self._rows = np.zeros(size, np.int64)
        self.rows = torch.from_numpy(self._rows)
        as_signed = (column.view(np.int64) if column.dtype == np.uint64 else column for column in self._columns)
        self.columns = tuple(map(torch.from_numpy, as_signed))  # as a kernel's `draw` takes them

    def fill(self, batch: Batch) -> None:
        num, given = len(batch.rows), batch.sampling
        for column, values, seen in zip(self._columns, _drawn_by(given), _drawn_by(self._seen), strict=True):
            if values is not seen:  # steps of the same rows share what does not change
                column[:num] = values
        if batch.rows is not self._rows_seen:
            self._rows[:num], self._rows[num:] = batch.rows, 0
            self._columns[0][num:] = 0  # the temperature
        self._seen, self._rows_seen = given, batch.rows


def _first(column: Tensor, num: int) -> Tensor:
    return column if num == len(column) else column[:num]


def _drawn_by(columns: SamplingColumns) -> tuple[npt.NDArray[Any], ...]:
    """What a kernel draws by, in the order of its arguments."""
    return columns.temperature, columns.top_k, columns.top_p, columns.min_p, columns.seeds, columns.positions


@dataclass(frozen=True, slots=True)
class Begun:
    """A prepared step of `num` rows that runs. What it computes is good until the next one is begun."""

    step: RecordedStep
    replayed: Replayed
    num: int

    def logits(self) -> Tensor:
        """[num, V] float32"""
        self.replayed.join()
        return _first(self.step.logits, self.num)

    def drawn(self) -> tuple[Tensor, Tensor]:
        """Tokens [num] int64, and which rows' logits are finite [num] bool."""
        self.replayed.join()
        return _first(self.step.tokens, self.num), _first(self.step.finite, self.num)


class StepGraphs:
    """Prepared steps of up to `max_rows` rows, each recorded when it is first needed: the forward pass and the draw."""

    def __init__(self, forward: Forward, draw: Draw, record: Record, table: Tensor, max_rows: int) -> None:
        self._forward, self._draw, self._record, self._table = forward, draw, record, table
        self._sizes = np.array(sizes_up_to(max_rows))
        self._prepared: dict[int, tuple[StepBuffers, StepDraws, RecordedStep]] = {}

    def covers(self, batch: Batch) -> bool:
        """Whether it is a step that can be prepared, and there are not too many rows."""
        return batch.only_decodes and 0 < len(batch.rows) <= self._limit

    @property
    def _limit(self) -> int:
        return int(self._sizes[-1]) if len(self._sizes) else 0

    def begin(self, batch: Batch, row_buffer: RowBuffer, draws: bool) -> Begun | None:
        """None: this forward pass cannot be replayed. See `covers`; what was begun before is done.

        `draws`: tokens are drawn from the logits as they are, and what each row reads next is written.
        """
        num = len(batch.rows)
        size = int(self._sizes[np.searchsorted(self._sizes, num)])
        if size not in self._prepared and not self._prepare(size):
            return None
        inputs, sampling, step = self._prepared[size]
        inputs.fill(batch, row_buffer)
        if draws:
            sampling.fill(batch)
        replayed = step.whole if draws else step.forward
        replayed.begin()
        return Begun(step, replayed, num)

    def join(self) -> None:
        """Wait for what was begun."""
        for *_, step in self._prepared.values():
            step.whole.join()

    def _prepare(self, size: int) -> bool:
        """While it is recorded, a step computes padding."""
        inputs, draws = StepBuffers(size, self._table), StepDraws(size)
        try:
            step = self._record(lambda: self._forward(inputs.inputs), lambda logits: self._draw(logits, draws))
        except NotReplayable as why:
            log.warning("steps are not prepared, which costs time: %s", why)
            self._sizes = self._sizes[:0]
            return False
        self._prepared[size] = inputs, draws, step
        return True
