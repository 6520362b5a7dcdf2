"""The forward pass of a step: layers call by call, in one call of native code, or as a graph; then states and logits.

Decides which of these a step takes. Knows no batch. T new tokens, N hidden size, Q drawing rows, V vocabulary.
"""

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from ramet.runtime.arrays import Floats, Ints
from ramet.runtime.attention.base import ForwardInputs, StepBackend
from ramet.runtime.cache.routes import RouteTable
from ramet.runtime.engine.devices.base import Device, NotReplayable, States
from ramet.runtime.engine.extras import HiddenRows
from ramet.runtime.engine.inputs import drawing
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

    def hidden(self, rows: HiddenRows) -> Floats:
        """[num, N], or their sum [1, N]; on the host."""
        states = self.states(torch.arange(rows.first, rows.first + rows.num)).float()
        kept: Floats = (states.sum(0, keepdim=True) if rows.summed else states).cpu().numpy()
        return kept

    def logits(self, at: Tensor) -> Tensor:
        """at [n] int64 indices into T. [n, V] float32"""
        adapters = None if self.adapters is None else self.adapters.index_select(0, at.to(self.x.device))
        return self.model.logits(self.states(at), adapters)

    @torch.inference_mode()
    def drawn(self) -> Tensor | None:
        """[Q, V] float32 for the rows that draw, None when none does."""
        return self.logits(self.last_tokens) if len(self.last_tokens) else None


class ForwardPass:
    """A model with its attention."""

    def __init__(
        self, device: Device, model: CausalModel, attention: StepBackend, routes: RouteTable | None,
        table: Tensor, *, replays: bool, has_states: bool,
    ) -> None:  # fmt: skip
        """`replays`: steps may be captured, or their calls listed. `table`: the slot table."""
        self.model, self.attention = model, attention
        self.has_states = has_states
        self._device, self._routes = device, routes
        self.lists_calls = replays and device.lists_calls(attention)
        self.prompt_graphs = None
        if replays and device.captures(attention) and not has_states:  # snapshots are taken inside a prompt
            self.prompt_graphs = device.capture_prompts(self._every_state, attention, table)

    def run(self, inputs: ForwardInputs, draws: Ints, *, reads_all: bool) -> ForwardResult:
        """draws [Q] indices into R. `reads_all`: states of tokens that do not draw are asked for, too."""
        if self.prompt_graphs is not None and inputs.adapters is None:
            states = self.prompt_graphs.run(inputs)
            if states is not None:
                return ForwardResult(self.model, *states, inputs.last_tokens, None)
        at, drawn_rows = inputs.last_tokens, None
        if len(at) < len(inputs.token_ids) and not reads_all and self._routes is None:
            drawn_rows = drawing(inputs, draws)
            at = drawn_rows.last_tokens
        of_x = inputs if drawn_rows is None else drawn_rows
        return ForwardResult(self.model, *self._states(inputs, drawn_rows), at, of_x.adapters)

    def decode(self, inputs: ForwardInputs) -> Tensor:
        """[n, V] of rows that decode."""
        self._plan(inputs)
        return self.model.decode(inputs, self.attention, narrow=self._device.draws_narrow)

    def _states(self, inputs: ForwardInputs, drawn_rows: ForwardInputs | None) -> States:
        def computed() -> States:
            self._plan(inputs)
            return self.model.hidden_states(inputs, self.attention, drawn_rows)

        is_text = not inputs.embeds and inputs.mrope_positions is None
        if self.lists_calls and is_text and len(inputs.token_ids) >= MIN_DEFERRED:
            try:
                kind = None if drawn_rows is None else len(drawn_rows.rows) > 0, inputs.adapters is None
                return self._device.at_once(kind, computed)
            except NotReplayable as why:
                log.info("steps with prompts are computed call by call: %s", why)
                self.lists_calls = False
        return computed()

    def _every_state(self, inputs: ForwardInputs) -> States:
        self._plan(inputs)
        return self.model.hidden_states(inputs, self.attention)

    def _plan(self, inputs: ForwardInputs) -> None:
        """What a forward pass with these needs to know beforehand."""
        self.attention.plan(inputs)
        if self._routes is not None:
            self._routes.plan(inputs.slots)
