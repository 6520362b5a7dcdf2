"""A step's inputs on the device: the slot table, and the tensors of one batch, placed anew for each step.

Decides what is copied to the device. Knows no model.
R rows of a batch, T new tokens, Q drawing rows, L longest context.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ramet.kernels.reference_delta import PlacedRows, StateRows
from ramet.runtime.arrays import Ints
from ramet.runtime.attention.base import ForwardInputs
from ramet.runtime.cache.host_view import host_view, is_host
from ramet.runtime.cache.state_places import StateSaves
from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.extras import Embeds, FeatureRows, MropePositions, PositionOffsets, RowAdapters, SlotUpdate
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
        if self._host is not None and batch.only_decodes and not updates:
            self._host[batch.rows, batch.positions] = batch.slots
            return
        if not new_tokens and not updates:
            return
        rows = [np.full(len(update.slots), update.row, np.int32) for update in updates]
        positions = [np.arange(u.start, u.start + len(u.slots), dtype=np.int32) for u in updates]
        slots = [update.slots for update in updates]
        self._updates = []
        if new_tokens:
            rows.append(batch.rows if batch.num_decode == len(batch.rows) else np.repeat(batch.rows, batch.num_new))
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


def place(
    batch: Batch, table: SlotTable, row_buffer: RowBuffer, device: torch.device, states: bool = False
) -> ForwardInputs:
    """The tensors of one step; `table` must have taken in the batch. WRITES the lengths of rows the host knows.

    `states`: of layers that have some, rows are read on a GPU, too.
    """
    saves = batch.input(StateSaves) if batch.inputs else None
    save_at, save_to = (None, None) if saves is None else (saves.at, saves.to)
    state_rows = StateRows(batch.rows, batch.num_new, batch.seq_lens, save_at, save_to)
    if states and not is_host(device):
        state_rows = replace(state_rows, placed=PlacedRows.of(state_rows, device))
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
    placed = ForwardInputs(
        token_ids=token_ids,
        positions=positions,
        slots=on_device(batch.slots.astype(np.int64), device),
        last_tokens=on_device(last_tokens, device),
        table=table.device,
        rows=batch.rows,
        num_new=batch.num_new,
        seq_lens=batch.seq_lens,
        num_decode=batch.num_decode,
        state_rows=state_rows,
    )
    return _with_inputs(placed, batch) if batch.inputs else placed


def _with_inputs(placed: ForwardInputs, batch: Batch) -> ForwardInputs:
    """The same step with what some of its rows bring."""
    device, positions = placed.positions.device, placed.positions
    offsets, mrope, adapters = batch.input(PositionOffsets), batch.input(MropePositions), batch.input(RowAdapters)
    return replace(
        placed,
        embeds=tuple(_embeds(batch, device)),
        key_ends=_key_ends(batch),
        position_offsets=None if offsets is None else offsets.values,
        rope_positions=_rope_positions(batch, positions, mrope, offsets),
        mrope_positions=None if mrope is None else on_device(mrope.values.astype(np.int64), device),
        adapters=None if adapters is None else on_device(_of_tokens(batch, adapters.values), device).int(),
    )


def drawing(inputs: ForwardInputs, draws: Ints) -> ForwardInputs:
    """The last tokens of the rows `draws` [Q] alone, as a step: what comes before them is in the pool by then."""
    at, rows = inputs.last_tokens, inputs.rows[draws]
    return ForwardInputs(
        token_ids=inputs.token_ids.index_select(0, at),
        positions=inputs.positions.index_select(0, at),
        slots=inputs.slots.index_select(0, at),
        last_tokens=torch.arange(len(at), device=at.device),
        table=inputs.table,
        rows=rows,
        num_new=np.ones(len(rows), np.int32),
        seq_lens=inputs.seq_lens[draws],
        num_decode=len(rows),
        position_offsets=None if inputs.position_offsets is None else inputs.position_offsets[draws],
        rope_positions=None if inputs.rope_positions is None else inputs.rope_positions.index_select(0, at),
        mrope_positions=inputs.mrope_positions,
        adapters=None if inputs.adapters is None else inputs.adapters.index_select(0, at),
    )


def _embeds(batch: Batch, device: torch.device) -> Iterator[tuple[int, Tensor]]:
    """What stands in the place of some tokens' ids, as ForwardInputs has it."""
    for each in batch.inputs:
        if isinstance(each, Embeds):
            yield each.first, on_device(each.values.copy(), device)
        elif isinstance(each, FeatureRows):
            yield each.first, each.features.values[each.start : each.start + each.num].to(device)


def _rope_positions(
    batch: Batch, positions: Tensor, mrope: MropePositions | None, offsets: PositionOffsets | None
) -> Tensor | None:
    """What ForwardInputs has under this name, for positions [T]."""
    if mrope is not None:
        return torch.arange(len(positions), device=positions.device)
    return None if offsets is None else positions - on_device(_of_tokens(batch, offsets.values), positions.device)


def _key_ends(batch: Batch) -> Ints | None:
    """[T] number of keys that each token attends to, of a step where some see what comes behind them."""
    whole = [each for each in batch.inputs if isinstance(each, FeatureRows) and each.is_whole]
    if not whole:
        return None
    key_ends = batch.positions + 1
    for each in whole:
        key_ends[each.first : each.first + each.num] = key_ends[each.first + each.num - 1]
    return key_ends.astype(np.int32, copy=False)


def _of_tokens(batch: Batch, column: Ints) -> npt.NDArray[np.int64]:
    """column [R] -> [T]: every token has the number of its row."""
    return np.repeat(column, batch.num_new).astype(np.int64)
