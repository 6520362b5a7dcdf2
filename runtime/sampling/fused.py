"""The epilogue of a step on a GPU: the order of epilogue.py, in the fused kernels of kernels/logits_epilogue.py.

Decides what is read once and what must be written in between: penalties and biases before a logit processor or where
log-probabilities are returned, nothing otherwise. Knows no request. Q drawing rows, V vocabulary.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ramet.kernels import draw_params
from ramet.kernels import logits_epilogue as kernels
from ramet.kernels.draw_params import DrawParams
from ramet.kernels.epilogue_rows import EpilogueRows, EpilogueState
from ramet.runtime.arrays import Ints
from ramet.runtime.sampling.columns import LogitEntries, SamplingColumns
from ramet.runtime.sampling.epilogue import DeviceMasks, Epilogue, Stages, on_device, params_on


class FusedStages:
    """One pass over the logits, or two where something besides the draw reads them (`in_place`)."""

    def __init__(self, rows: EpilogueRows, state: EpilogueState, in_place: bool) -> None:
        self._rows, self._state, self.in_place = rows, state, in_place

    def adjust(self, logits: Tensor) -> None:
        if self._rows.penalises:
            kernels.adjust_logits(logits, self._rows, self._state)

    def draw(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        drawn = kernels.logits_epilogue(logits, self._rows, self._state, adjusted=self.in_place)
        return drawn.tokens, drawn.finite


class FusedEpilogue(Epilogue):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        counts, seen = self._penalties.counts, self._penalties.seen
        none = torch.zeros(0, dtype=torch.int32, device=seen.device)  # each step with grammars brings its masks
        buffer = self._row_buffer
        self._state = EpilogueState(counts, seen, none[:, None], buffer.lengths, buffer.next_ids)

    def _stages(self, columns: SamplingColumns, rows: Tensor, masks: DeviceMasks | None) -> Stages:
        state = self._state if masks is None else replace(self._state, allowed=masks.allowed)
        read_twice = columns.openings is not None or bool(columns.healed) or (bool(columns.logprobs) and not self._raw)
        return FusedStages(rows_of(columns, rows), state, bool(columns.processors or columns.filters) or read_twice)

    def _draw_plain(self, logits: Tensor, columns: SamplingColumns, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self._stages(columns, rows, None).draw(logits)

    def draw_prepared(self, logits: Tensor, rows: EpilogueRows) -> tuple[Tensor, Tensor]:
        """What a prepared step draws: tokens [n] and whether they are any [n], as `run` does."""
        drawn = kernels.logits_epilogue(logits, rows, self._state)
        return drawn.tokens, drawn.finite


def prepared_rows(params: DrawParams[Tensor], of: Mapping[str, Tensor]) -> EpilogueRows:
    """Rows [n] of a prepared step, whose columns stay where they are: drawn without cuts, penalised or not."""
    num, device = len(of["rows"]), of["rows"].device
    zeros = torch.zeros(num + 1, dtype=torch.int32, device=device)
    none = torch.zeros(0, dtype=torch.int32, device=device)
    return EpilogueRows(
        draw_params=params,
        **{name: of[name] for name in ("frequency", "presence", "repetition")},
        slots=of["penalty_slots"], positions=of["drawn_positions"], table_rows=of["rows"], masks=zeros[:num] - 1,
        bias_starts=zeros, bias_ids=none, biases=none.float(), ban_starts=zeros, ban_ids=none,
        penalises=True, ranks=False, floors=False,
    )  # fmt: skip


def rows_of(columns: SamplingColumns, table_rows: Tensor) -> EpilogueRows:
    """The same as tensors of the device, each feature in all of the rows. table_rows [Q] int64 is there already."""
    device = table_rows.device
    num = len(columns.positions)
    slots = np.zeros(num, np.int32)
    frequency, presence, repetition = np.zeros(num, np.float32), np.zeros(num, np.float32), np.ones(num, np.float32)
    if (own := columns.penalties) is not None:
        slots[own.rows] = own.slots
        frequency[own.rows], presence[own.rows], repetition[own.rows] = own.frequency, own.presence, own.repetition
    bias_order, bias_starts, bias_ids = _by_row(columns.biased, num)
    _, ban_starts, ban_ids = _by_row(columns.banned, num)
    biases = np.zeros(0, np.float32) if columns.biases is None else columns.biases[bias_order]
    masks = np.full(num, -1, np.int32)
    if columns.masked is not None:
        masks[columns.masked] = np.arange(len(columns.masked), dtype=np.int32)
    host: dict[str, npt.NDArray[Any]] = dict(
        positions=columns.positions, slots=slots, frequency=frequency, presence=presence, repetition=repetition,
        bias_starts=bias_starts, bias_ids=bias_ids, biases=biases, ban_starts=ban_starts, ban_ids=ban_ids,
        masks=masks,
    )  # fmt: skip
    return EpilogueRows(
        draw_params=params_on(columns.draw_params, device),
        **{name: on_device(column, device) for name, column in host.items()},
        table_rows=table_rows.int(),
        penalises=own is not None or columns.biased is not None,
        ranks=draw_params.cuts_by_rank(columns.draw_params),
        floors=draw_params.cuts_below_best(columns.draw_params),
    )


def _by_row(spots: LogitEntries | None, num: int) -> tuple[Ints, Ints, Ints]:
    """The order that sorts spots by row, where each row's begin [num + 1], and their ids in that order."""
    if spots is None:
        nothing = np.zeros(0, np.int32)
        return nothing, np.zeros(num + 1, np.int32), nothing
    order = np.argsort(spots.rows, kind="stable").astype(np.int32)
    starts = np.searchsorted(spots.rows[order], np.arange(num + 1)).astype(np.int32)
    return order, starts, spots.ids[order]
