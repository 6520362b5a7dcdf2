"""The forward pass of a step: layers call by call, in one call of native code, or as a graph; then states and logits.

Decides which of these a step takes. Knows no batch. T new tokens, N hidden size, Q drawing rows, V vocabulary.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ramet.runtime.arrays import Ints
from ramet.runtime.attention.base import ForwardInputs, StepBackend
from ramet.runtime.engine.devices.base import Device, NotReplayable, States
from ramet.runtime.models.causal import CausalModel

MIN_DEFERRED = 16  # tokens; steps of fewer run call by call, for Python is still in the CPU's caches then

log = logging.getLogger("ramet")


@dataclass(frozen=True, slots=True)
class ForwardResult:
    """A step whose tokens are computed, before its logits are."""

    model: CausalModel
    x: Tensor  # [T, N], padding behind it, or of the tokens that draw alone: [Q, N]
    residual: Tensor  # as x
    last_tokens: Tensor  # [Q] int64, index into x
    adapters: Tensor | None  # of x, as ForwardInputs

    def states(self, at: Tensor) -> Tensor:
        """at [n] int64 indices into T. [n, N] after the final norm."""
        return self.model.final_states(self.x, self.residual, at.to(self.x.device))

    def logits(self, at: Tensor) -> Tensor:
        """at [n] int64 indices into T. [n, V] float32"""
        at = at.to(self.x.device)
        adapters = None if self.adapters is None else self.adapters.index_select(0, at)
        return self.model.logits(self.model.final_states(self.x, self.residual, at), adapters)

    @torch.inference_mode()
    def drawn(self) -> Tensor | None:
        """[Q, V] float32 for the rows that draw, None when none does."""
        return self.logits(self.last_tokens) if len(self.last_tokens) else None


class ForwardPass:
    """A model with its attention."""

    def __init__(
        self, device: Device, model: CausalModel, attention: StepBackend, table: Tensor, *, replays: bool,
        captures_prompts: bool, plan_tokens: Callable[[Tensor], None] | None = None,
    ) -> None:  # fmt: skip
        """`replays`: steps may be captured, or their calls listed. `table`: the slot table.

        `plan_tokens` gets the slots [T] of each step, and every layer then computes all of its tokens.
        """
        self.model, self.attention = model, attention
        self._device, self._plan_tokens = device, plan_tokens
        self.lists_calls = replays and device.lists_calls(attention)
        self.prompt_graphs = None
        if replays and captures_prompts and device.captures(attention):
            self.prompt_graphs = device.capture_prompts(self._compute, attention, table)

    def run(self, inputs: ForwardInputs, draws: Ints, *, reads_all: bool) -> ForwardResult:
        """draws [Q] indices into R. `reads_all`: tokens that do not draw are asked for, too."""
        if self.prompt_graphs is not None:
            states = self.prompt_graphs.run(inputs)
            if states is not None:
                return ForwardResult(self.model, *states, inputs.last_tokens, None)
        at, last = inputs.last_tokens, None
        if len(at) < len(inputs.token_ids) and not reads_all and self._plan_tokens is None:
            last = inputs.drawing(draws)
            at = last.last_tokens
        of_x = inputs if last is None else last
        lists = self.lists_calls and inputs.is_text and len(inputs.token_ids) >= MIN_DEFERRED
        found = self._listed(inputs, last) if lists else self._compute(inputs, last)
        return ForwardResult(self.model, *found, at, of_x.adapters)

    def decode(self, inputs: ForwardInputs) -> Tensor:
        """[n, V] of rows that decode."""
        self._plan(inputs)
        return self.model.decode(inputs, self.attention, narrow=self._device.draws_narrow)

    def _compute(self, inputs: ForwardInputs, last: ForwardInputs | None = None) -> States:
        """`last`: the tokens that draw, which alone the last layer computes; None: it computes all."""
        self._plan(inputs)
        return self.model.hidden_states(inputs, self.attention, last)

    def _listed(self, inputs: ForwardInputs, last: ForwardInputs | None) -> States:
        """The same in one call of native code, where all of it is native."""
        try:
            kind = None if last is None else len(last.rows) > 0, inputs.adapters is None
            return self._device.at_once(kind, partial(self._compute, inputs, last))
        except NotReplayable as why:
            log.info("steps with prompts are computed call by call: %s", why)
            self.lists_calls = False
        return self._compute(inputs, last)

    def _plan(self, inputs: ForwardInputs) -> None:
        """What a forward pass with these needs to know beforehand."""
        self.attention.plan(inputs)
        if self._plan_tokens is not None:
            self._plan_tokens(inputs.slots)
