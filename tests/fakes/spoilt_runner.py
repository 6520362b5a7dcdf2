"""Runners whose sequences have nothing finite once they have read the token BAD, as in bench_top's other fakes a hash.

BAD spoils the whole chunk that it is in, earlier tokens as well, as it does where an attention kernel multiplies masked
values by zero. What is told of a spoilt sequence (draws, log-probabilities, hidden states) is not finite.
"""

from dataclasses import replace

import numpy as np
from delayed_runner import DelayedRunner
from hash_runner import HashRunner
from seeing_runner import LateSeeingRunner, SeeingRunner
from state_runner import DelayedStateRunner, StateRunner

from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.extras import HiddenRows, PromptLogprobs, SlotCopy
from ramet.runtime.sampling.columns import PlaceLogprobs

BAD = 96


class _Spoilt:
    """Mixed into a runner."""

    spoilt: np.ndarray

    def compute(self, batch: Batch) -> None:
        if not hasattr(self, "spoilt"):
            self.spoilt = np.zeros(len(self.pool), dtype=bool)  # type: ignore[attr-defined]
        for copy in (each for each in batch.before if isinstance(each, SlotCopy)):
            self.spoilt[copy.target] = self.spoilt[copy.source]
        ids = batch.token_ids.copy()
        ids[batch.relayed] = self.drawn[batch.rows[batch.relayed]]  # type: ignore[attr-defined]
        super().compute(batch)  # type: ignore[misc]
        self.spoilt[batch.slots] = ids == BAD
        for row, seq_len, num_new in zip(batch.rows, batch.seq_lens, batch.num_new, strict=True):
            slots = self.table[row, :seq_len]  # type: ignore[attr-defined]
            if self.spoilt[slots].any():
                self.spoilt[slots[-num_new:]] = True
                self.break_rows.add(int(row))  # type: ignore[attr-defined]
            else:
                self.break_rows.discard(int(row))  # type: ignore[attr-defined]

    def _hidden(self, batch: Batch, rows: HiddenRows) -> np.ndarray:
        told = super()._hidden(batch, rows)  # type: ignore[misc]
        return np.full_like(told, np.nan) if self._reads_spoilt(batch, rows.first) else told

    def _score_prompt(self, batch: Batch, scoring: PromptLogprobs) -> PlaceLogprobs:
        told = super()._score_prompt(batch, scoring)  # type: ignore[misc]
        if self._reads_spoilt(batch, scoring.first):
            told = replace(told, values=np.full_like(told.values, np.nan))
        return told

    def _reads_spoilt(self, batch: Batch, token: int) -> bool:
        """Whether the row that computes the `token`-th of a batch's tokens does."""
        at = int(np.searchsorted(np.cumsum(batch.num_new), token, side="right"))
        slots = self.table[batch.rows[at], : batch.seq_lens[at]]  # type: ignore[attr-defined]
        return bool(self.spoilt[slots].any())


class SpoiltRunner(_Spoilt, HashRunner):
    pass


class LateSpoiltRunner(_Spoilt, DelayedRunner):
    pass


class SpoiltStateRunner(_Spoilt, StateRunner):
    pass


class LateSpoiltStateRunner(_Spoilt, DelayedStateRunner):
    pass


class SpoiltSeeingRunner(_Spoilt, SeeingRunner):
    pass


class LateSpoiltSeeingRunner(_Spoilt, LateSeeingRunner):
    pass


RUNNERS = {
    "tree": (SpoiltRunner, LateSpoiltRunner),
    "list": (SpoiltRunner, LateSpoiltRunner),
    "states": (SpoiltStateRunner, LateSpoiltStateRunner),
    "contexts": (SpoiltSeeingRunner, LateSpoiltSeeingRunner),
}
