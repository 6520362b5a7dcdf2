"""Log-probabilities at places of a sequence: of one token, of the best ones, of chosen ones.

Decides how they are computed, and that a prompt has no more than MAX_PLACES rows of logits at one time. Knows no
request and no sampling parameter: the logits are what the client shall see. N places, V vocabulary, k best, m chosen
tokens.
A token that cannot be drawn has the smallest float32, for JSON has no infinity.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ramet.runtime.arrays import Floats, Ints
from ramet.runtime.sampling.columns import LogprobRow, PlaceLogprobs, SamplingColumns

MAX_PLACES = 128  # at once: 64 MB of logits for a vocabulary of 128k; fewer rows make the product with it slower
SMALLEST = float(np.finfo(np.float32).min)


class LogprobKernel(Protocol):
    """`ramet.kernels.reference` documents it."""

    def normalise(
        self, logits: Tensor, rows: Tensor, temperature: Tensor, num_top: int
    ) -> tuple[Tensor, Tensor, Tensor]: ...


class RowLogprobs:
    """Log-probabilities at N rows of logits [Q, V] float32. rows [N] int64, temperature [N] float32."""

    def __init__(self, kernel: LogprobKernel, logits: Tensor, rows: Tensor, temperature: Tensor, num_top: int) -> None:
        self._logits, self._rows, self._temperature = logits, rows[:, None], temperature[:, None]
        best, log_sums, self._top = kernel.normalise(logits, rows, temperature, min(num_top, logits.shape[1]))
        self._best, self._log_sums = best[:, None], log_sums[:, None]

    def at(self, tokens: Tensor, ids: Ints) -> PlaceLogprobs:
        """Of tokens [N] int64, of the best ones, of ids [N, m]."""
        chosen = torch.from_numpy(ids).to(tokens.device).long()
        top = self._top.to(torch.int32).cpu().numpy()
        return PlaceLogprobs(self._of(tokens[:, None])[:, 0], top, self._of(self._top), self._of(chosen))

    def _of(self, ids: Tensor) -> Floats:
        """ids [N, k] -> [N, k]"""
        values = (self._logits[self._rows, ids] - self._best) / self._temperature - self._log_sums
        return values.clamp_min(SMALLEST).cpu().numpy()


def logprobs_of_prompt(
    kernel: LogprobKernel, logits_of: Callable[[Tensor], Tensor], first: int, targets: Ints, num_top: int, ids: Ints
) -> PlaceLogprobs:
    """The token at index first + i of a step predicts targets[i]; logits_of(indices [n] int64) is [n, V]."""
    parts = []
    for start in range(0, len(targets), MAX_PLACES):
        tokens = torch.from_numpy(targets[start : start + MAX_PLACES]).long()
        logits = logits_of(torch.arange(first + start, first + start + len(tokens)))
        device = logits.device
        rows, ones = torch.arange(len(tokens), device=device), torch.ones(len(tokens), device=device)
        every = np.broadcast_to(ids, (len(tokens), len(ids))).copy()
        parts.append(RowLogprobs(kernel, logits, rows, ones, num_top).at(tokens.to(device), every))
    columns = zip(*((p.values, p.top_ids, p.top_values, p.chosen) for p in parts), strict=True)
    return PlaceLogprobs(*(np.concatenate(column) for column in columns))


def logprobs_of_drawn(
    kernel: LogprobKernel, logits: Tensor, tokens: Tensor, columns: SamplingColumns, raw: bool
) -> tuple[PlaceLogprobs, ...]:
    """One for each row of columns.logprobs. logits [Q, V] and tokens [Q] are the step's; `raw` ignores temperature.

    Greedy rows are seen at temperature 1.
    """
    parts = (columns.logprobs[i : i + MAX_PLACES] for i in range(0, len(columns.logprobs), MAX_PLACES))
    return tuple(place for part in parts for place in _of_rows(kernel, logits, tokens, columns, part, raw))


def _of_rows(
    kernel: LogprobKernel,
    logits: Tensor,
    tokens: Tensor,
    columns: SamplingColumns,
    asked: tuple[LogprobRow, ...],
    raw: bool,
) -> Iterator[PlaceLogprobs]:
    rows = np.array([row.row for row in asked])
    own = columns.draw_params.temperature[rows]
    temperature = np.where(raw | (own <= 0), np.float32(1), own)
    at, temperatures = (torch.from_numpy(column).to(logits.device) for column in (rows, temperature))
    ids = np.zeros((len(asked), max(len(row.ids) for row in asked)), np.int32)
    for i, row in enumerate(asked):
        ids[i, : len(row.ids)] = row.ids
    rows_logprobs = RowLogprobs(kernel, logits, at, temperatures, max(row.num_top for row in asked))
    every = rows_logprobs.at(tokens[at], ids)
    return (_part(every, i, row) for i, row in enumerate(asked))


def _part(every: PlaceLogprobs, i: int, row: LogprobRow) -> PlaceLogprobs:
    """What one row asked for."""
    own, tops, ids = slice(i, i + 1), slice(row.num_top), slice(len(row.ids))
    return PlaceLogprobs(
        every.values[own], every.top_ids[own, tops], every.top_values[own, tops], every.chosen[own, ids]
    )
