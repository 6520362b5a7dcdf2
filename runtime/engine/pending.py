"""A launched step on its way to its result. Decides when it is computed, and what waits for what. Q drawing rows."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ramet.runtime.arrays import Ints
from ramet.runtime.engine.batch import NO_ROWS, StepResult
from ramet.runtime.engine.devices.base import Device
from ramet.runtime.engine.devices.copies import Readback
from ramet.runtime.engine.extras import Answer
from ramet.runtime.engine.prepared import BegunStep
from ramet.runtime.sampling.columns import SamplingColumns
from ramet.runtime.sampling.epilogue import Drawn, Epilogue, on_device
from ramet.runtime.sampling.processing import Failures


@dataclass(frozen=True, slots=True)
class Computed:
    """What a forward pass has left, computed or queued: what is drawn from, and what a result has beside tokens."""

    logits: Tensor | None  # [Q, V] float32; None: nothing is drawn, or the step has drawn itself
    phases: dict[str, float]
    answers: tuple[Answer, ...] = ()


class PendingStep:
    """A step in one of four states, each of which follows the one before it:

    waiting    `compute` has not run; a device may replay the step meanwhile (`begun`)
    computed   its logits are there or queued; a step with masks waits here for `draw`
    drawn      its tokens are there, or on their way to the host
    ended      its result is known
    """

    def __init__(
        self, compute: Callable[[], Computed], sampling: SamplingColumns, rows: Ints, epilogue: Epilogue,
        device: Device, begun: BegunStep | None = None,
    ) -> None:  # fmt: skip
        """rows [Q]: where those that draw are in the slot table."""
        self._compute, self._sampling, self._rows, self._epilogue = compute, sampling, rows, epilogue
        self._device, self._begun = device, begun
        # The host does nothing more for it: what comes next can be begun behind it.
        self.draws_itself = begun is not None and begun.draws
        self._computed: Computed | None = None  # None: nobody has asked for it yet
        self._drawn: Drawn | None = None
        self._readback: Readback | None = None  # None: what was drawn is on the host already
        self._failed: tuple[tuple[int, ...], Failures] | None = None  # as Drawn.outcome; None: nobody has looked yet

    @property
    def runs(self) -> bool:
        if self._computed is None:
            return self._begun is not None
        return self._computed.logits is not None and self._device.queues_steps

    def compute(self) -> None:
        """Compute or queue it, if nobody has yet, and draw what needs no masks."""
        if self._computed is not None:
            return
        self._computed = self._compute()
        if self._computed.logits is not None and self._sampling.masked is None:
            self._draw(None)

    def draw(self, allowed: Ints) -> None:
        """allowed [K, W] int32 of the K rows that a grammar masks."""
        self.compute()
        self._draw(allowed)

    @torch.inference_mode()
    def _draw(self, allowed: Ints | None) -> None:
        started, step = time.perf_counter(), self._computed
        assert step is not None and step.logits is not None, "a step that has drawn its tokens gets a mask"
        rows = on_device(self._rows.astype(np.int64), step.logits.device)
        drawn = self._drawn = self._epilogue.run(step.logits, self._sampling, rows, allowed)
        self._readback = self._device.to_host((drawn.tokens, drawn.finite))
        if self._readback is None:  # the next step may write its logits to the same place
            self._failed = drawn.outcome(drawn.finite)
        step.phases["sample"] = time.perf_counter() - started

    def result(self) -> StepResult:
        self.compute()
        step, drawn = self._computed, self._drawn
        assert step is not None
        if step.logits is None:
            ids, broken = (NO_ROWS, ()) if self._begun is None else self._begun.drawn()
            return StepResult(ids, broken, answers=step.answers, phases=step.phases)
        assert drawn is not None, "a step waits for its masks"
        tokens, finite = (drawn.tokens, drawn.finite) if self._readback is None else self._readback.wait()
        broken, failures = self._failed or drawn.outcome(finite)
        return StepResult(
            tokens.numpy().astype(np.int32),
            broken,
            tuple((row, *failure) for row, failure in failures.items()) if failures else (),
            drawn.logprobs,
            drawn.healed,
            step.answers,
            step.phases,
        )
