"""Rows whose prompt is healed: what a step says of the tokens from which its end is chosen again.

A row draws a token that covers the rest of the tail: its mask lets no other through. What the search for the best
sequence needs besides is taken from the logits before that mask: how probable it was that some token covers the tail,
the one that was drawn, and each token inside the tail. Log-probabilities that clients get are those without the mask.
B healed rows, V vocabulary, W words of a mask.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ramet.runtime.arrays import Floats
from ramet.runtime.sampling.columns import HealedPlace, SamplingColumns

Mask = Callable[[Tensor, Tensor, Tensor], None]  # as SamplingKernel.mask


class HealingDraw:
    """logits [Q, V] float32: all but the masks is in them. allowed [K, W] int32: the masks of rows masked [K] int32.

    `allowed` is WRITTEN where no token that it lets through can be drawn: any is drawn instead, and says nothing.
    """

    def __init__(self, logits: Tensor, columns: SamplingColumns, masked: Tensor, allowed: Tensor, mask: Mask) -> None:
        rows = np.array([row.row for row in columns.healed])
        self._columns, self._device = columns, logits.device
        self._rows = torch.from_numpy(rows).to(logits.device)
        self._own = logits[self._rows]  # [B, V] a copy
        self._ban(rows)
        own = columns.draw_params.temperature[rows]
        temperature = torch.from_numpy(np.where(own <= 0, np.float32(1), own)).to(logits.device)
        self._scaled = self._own / temperature[:, None]
        self._log_sums = torch.logsumexp(self._scaled, dim=-1)  # [B]
        at = torch.searchsorted(masked, self._rows.to(masked.dtype))
        covering = self._scaled.clone()
        mask(covering, torch.arange(len(rows), dtype=torch.int32, device=logits.device), allowed[at])
        self._covered = torch.logsumexp(covering, dim=-1) - self._log_sums  # [B]
        allowed[at] = torch.where(torch.isneginf(self._covered)[:, None], -1, allowed[at])

    def show(self, logits: Tensor) -> None:
        """WRITES logits [Q, V], from which log-probabilities are returned."""
        logits[self._rows] = self._own

    def places(self, tokens: Tensor) -> tuple[HealedPlace, ...]:
        """Of each row. tokens [Q] int64 were drawn."""
        drawn = self._scaled.gather(1, tokens[self._rows][:, None])[:, 0] - self._log_sums
        numbers = torch.stack([self._covered, drawn], dim=1).cpu().numpy()
        inner = [self._inner(i, row.inner) for i, row in enumerate(self._columns.healed)]
        return tuple(HealedPlace(float(c), float(d), each) for (c, d), each in zip(numbers, inner, strict=True))

    def _inner(self, at: int, ids: "np.ndarray[tuple[int], np.dtype[np.int32]]") -> Floats:
        chosen = torch.from_numpy(ids.astype(np.int64)).to(self._device)
        values: Floats = (self._scaled[at, chosen] - self._log_sums[at]).cpu().numpy()
        return values

    def _ban(self, rows: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> None:
        """What min_new_tokens forbids is no choice."""
        banned = self._columns.banned
        if banned is None:
            return
        own = np.isin(banned.rows, rows)
        at, ids = np.searchsorted(rows, banned.rows[own]), banned.ids[own].astype(np.int64)
        self._own[torch.from_numpy(at).to(self._device), torch.from_numpy(ids).to(self._device)] = -torch.inf
