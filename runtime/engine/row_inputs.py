"""What some rows bring to a step beside tokens, as tensors: embeddings, adapters, other positions, states of layers.

Called only for a step that has inputs, and by models whose layers have states. R rows, T new tokens.
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
from ramet.runtime.cache.host_view import is_host
from ramet.runtime.cache.state_places import StateSaves
from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.extras import Embeds, FeatureRows, MropePositions, PositionOffsets, RowAdapters
from ramet.runtime.sampling.epilogue import on_device


def with_inputs(placed: ForwardInputs, batch: Batch) -> ForwardInputs:
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


def with_states(placed: ForwardInputs, batch: Batch) -> ForwardInputs:
    """The same step for layers that have states; a GPU reads their rows, too."""
    saves, device = batch.input(StateSaves), placed.positions.device
    save_at, save_to = (None, None) if saves is None else (saves.at, saves.to)
    rows = StateRows(batch.rows, batch.num_new, batch.seq_lens, save_at, save_to)
    on_host = is_host(device)
    return replace(placed, state_rows=rows if on_host else replace(rows, placed=PlacedRows.of(rows, device)))


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
