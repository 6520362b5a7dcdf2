"""What happens to a step's logits, in this order and nowhere else.

Penalties, bias, logit processors, mask; then the draw and what is told of its probability.

Decides the order (a mask comes last, so that nothing makes a forbidden token legal again) and owns the state that drawn
tokens leave on the device. Knows no request. Q drawing rows, V vocabulary.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ramet.runtime.sampling.columns import LogitEntries, PenaltyReset, PlaceLogprobs, SamplingColumns
from ramet.runtime.sampling.logprobs import LogprobKernel, logprobs_of_drawn
from ramet.runtime.sampling.penalties import PenaltyKernel, PenaltyState
from ramet.runtime.sampling.processing import Failures, nothing_left, process
from ramet.runtime.sampling.processors import LogitProcessor


class SamplingKernel(PenaltyKernel, LogprobKernel, Protocol):
    """`ramet.kernels.reference` documents it."""

    def draw(
        self,
        logits: Tensor,
        temperature: Tensor,
        top_k: Tensor,
        top_p: Tensor,
        min_p: Tensor,
        seeds: Tensor,
        positions: Tensor,
    ) -> tuple[Tensor, Tensor]: ...


class Drawn(NamedTuple):
    tokens: Tensor  # [Q] int64
    broken: tuple[int, ...]  # rows whose logits are not finite: their token means nothing
    scores: tuple[PlaceLogprobs, ...]  # one for each of columns.logprobs
    failures: Failures  # rows that end with an error of their own


class Epilogue:
    """`num_slots` requests may use penalties at once. `raw_logprobs`: tell those of the model's own logits."""

    def __init__(
        self,
        num_slots: int,
        vocab_size: int,
        device: torch.device,
        kernel: SamplingKernel,
        processors: Mapping[str, LogitProcessor] = MappingProxyType({}),
        raw_logprobs: bool = False,
    ) -> None:
        self._penalties = PenaltyState(num_slots, vocab_size, device, kernel)
        self._kernel, self._processors, self._raw = kernel, processors, raw_logprobs

    def recount(self, penalty_resets: Iterable[PenaltyReset]) -> None:
        """Penalised requests that are seated in this step bring what they have drawn before."""
        for recount in penalty_resets:
            self._penalties.recount(recount)

    def run(self, logits: Tensor, columns: SamplingColumns) -> Drawn:
        """One token per row. logits [Q, V] float32 are WRITTEN."""
        told = logits.clone() if columns.logprobs and self._raw else logits
        if columns.penalties is not None:
            self._penalties.apply(logits, columns.penalties)
        if columns.biased is not None:
            assert columns.biases is not None
            logits[entries_at(columns.biased, logits)] += torch.from_numpy(columns.biases).to(logits.device)
        failures = process(logits, columns.processors, self._processors)
        if columns.banned is not None:
            logits[entries_at(columns.banned, logits)] = -torch.inf
        tokens, broken = self._draw(logits, columns)
        failures = nothing_left(logits, broken) | failures
        if columns.penalties is not None:
            self._penalties.count(columns.penalties, tokens)
        return Drawn(tokens, broken, logprobs_of_drawn(self._kernel, told, tokens, columns, self._raw), failures)

    def _draw(self, logits: Tensor, columns: SamplingColumns) -> tuple[Tensor, tuple[int, ...]]:
        """Tokens [Q], and the rows whose logits are not finite."""
        seeds = columns.seeds.view(np.int64)
        host = (columns.temperature, columns.top_k, columns.top_p, columns.min_p, seeds, columns.positions)
        device = (torch.from_numpy(column).to(logits.device) for column in host)
        tokens, finite = self._kernel.draw(logits, *device)
        return tokens, () if bool(finite.all()) else tuple(torch.nonzero(~finite).flatten().tolist())


def entries_at(spots: LogitEntries, logits: Tensor) -> tuple[Tensor, Tensor]:
    """An index of single logits."""
    rows, ids = (torch.from_numpy(column).to(logits.device).long() for column in (spots.rows, spots.ids))
    return rows, ids
