"""What the engine asks of any model: states of a step's tokens, and logits of some of them.

Decides no arithmetic: decoder.py computes with modules of our own, transformers/model.py with those of transformers.
T new tokens, N hidden size, Q drawing rows, V vocabulary.
"""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from ramet.runtime.attention.base import ForwardInputs, StepBackend
from ramet.runtime.cache.state_pool import StatePool
from ramet.runtime.models.shape import ModelShape


class CausalModel(nn.Module):
    """Once its weights are in `place_rope` and `place_states`; then `hidden_states` and `logits` for every step."""

    shape: ModelShape
    layers: nn.Module
    replayable = True  # its steps call our kernels alone, or ops that CUDA graphs record

    @property
    @abstractmethod
    def output(self) -> nn.Module:
        """What makes logits: the head, or the embedding that it is tied to."""

    def derive(self) -> None:
        """Make the weights that are made of others, once these are in and before any is packed."""

    @abstractmethod
    def place_rope(self, num_positions: int, device: torch.device) -> None:
        """So many positions are asked of it at most."""

    def place_states(self, pool: StatePool) -> None:
        """Before the first step, where some layer has a state."""

    @abstractmethod
    def hidden_states(
        self, inputs: ForwardInputs, attention: StepBackend, drawn_rows: ForwardInputs | None = None
    ) -> tuple[Tensor, Tensor]:
        """(x, residual), both [T, N], or with `drawn_rows` [Q, N] of inputs.last_tokens; what `final_states` reads."""

    @abstractmethod
    def final_states(self, x: Tensor, residual: Tensor, at: Tensor) -> Tensor:
        """x, residual of `hidden_states`; at [Q] int64 indices into them -> [Q, N], what the head reads."""

    @abstractmethod
    def decode(self, inputs: ForwardInputs, attention: StepBackend, narrow: bool = False) -> Tensor:
        """Of rows with one new token each: [T, V] float32; if `narrow`, of any float dtype where that is enough."""

    @abstractmethod
    def logits(self, states: Tensor, adapters: Tensor | None = None) -> Tensor:
        """From final states [Q, N] to [Q, V] float32, the caller's to write. adapters [Q] as ForwardInputs has them."""
