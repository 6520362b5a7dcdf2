"""A step whose tokens are computed, and what is read of them: final states, logits.

T new tokens, Q rows that draw, N numbers of a state, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ramet.runtime.arrays import Floats
from ramet.runtime.engine.batch import HiddenRows
from ramet.runtime.lora.layers import StepSlots
from ramet.runtime.models.causal import CausalModel


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A step whose tokens are computed, before its logits are."""

    model: CausalModel
    x: Tensor  # [T, N], padding behind it, or of the tokens that draw alone: [Q, N]
    residual: Tensor  # as x
    last_tokens: Tensor  # [Q] int64, index into x
    step: StepSlots
    adapters: Tensor | None  # of x, as ForwardInputs

    def states(self, at: Tensor) -> Tensor:
        """at [n] int64 indices into T. [n, N] after the final norm."""
        return self.model.final_states(self.x, self.residual, at.to(self.x.device))

    def hidden(self, rows: HiddenRows) -> Floats:
        """[num, N], or their sum [1, N]; on the host."""
        states = self.states(torch.arange(rows.first, rows.first + rows.num)).float()
        kept: Floats = (states.sum(0, keepdim=True) if rows.summed else states).cpu().numpy()
        return kept

    def logits(self, at: Tensor) -> Tensor:
        """at [n] int64 indices into T. [n, V] float32"""
        self.step.place(None if self.adapters is None else self.adapters.index_select(0, at.to(self.x.device)))
        return self.model.logits(self.states(at))

    @torch.inference_mode()
    def drawn(self) -> Tensor | None:
        """[Q, V] float32 for the rows that draw, None when none does."""
        return self.logits(self.last_tokens) if len(self.last_tokens) else None
