"""A launched step on its way to its result. Decides when it is computed, and what waits for what. Q drawing rows."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ramet.runtime.arrays import Ints
from ramet.runtime.engine.batch import Batch, StepResult
from ramet.runtime.engine.devices.base import Device
from ramet.runtime.engine.devices.copies import Readback
from ramet.runtime.engine.extras import Answer
from ramet.runtime.engine.prepared import BegunStep
from ramet.runtime.sampling.epilogue import Drawn, Epilogue, on_device
from ramet.runtime.sampling.processing import Failures


@dataclass(frozen=True, slots=True)
class StepLogits:
    """What a step draws from, computed or queued, and what its result has beside tokens."""

    logits: Tensor  # [Q, V] float32
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
        self, compute: Callable[[Batch], StepResult | StepLogits], batch: Batch, epilogue: Epilogue, device: Device,
        begun: BegunStep | None = None,
    ) -> None:  # fmt: skip
        self._compute: Callable[[Batch], StepResult | StepLogits] | None = compute  # None: it has run
        self._batch, self._epilogue, self._device, self._begun = batch, epilogue, device, begun
        # The host does nothing more for it: what comes next can be begun behind it.
        self.draws_itself = begun is not None and begun.draws
        self._logits: StepLogits | None = None  # once it is computed
        self._drawn: Drawn | None = None
        self._readback: Readback | None = None  # None: what was drawn is on the host already
        self._failed: tuple[tuple[int, ...], Failures] | None = None  # as Drawn.outcome; None: nobody has looked yet
        self._result: StepResult | None = None

    @property
    def runs(self) -> bool:
        if self._compute is not None:
            return self._begun is not None
        return self._logits is not None and self._device.queues_steps

    def compute(self) -> None:
        """Compute or queue it, if nobody has yet, and draw what needs no masks."""
        if self._compute is None:
            return
        computed, self._compute = self._compute(self._batch), None
        if isinstance(computed, StepResult):
            self._result = computed
            return
        self._logits = computed
        if self._batch.sampling.masked is None:
            self._draw(computed, None)

    def draw(self, allowed: Ints) -> None:
        """allowed [K, W] int32 of the K rows that a grammar masks."""
        self.compute()
        assert self._logits is not None, "a step that has drawn its tokens gets a mask"
        self._draw(self._logits, allowed)

    @torch.inference_mode()
    def _draw(self, step: StepLogits, allowed: Ints | None) -> None:
        started = time.perf_counter()
        batch = self._batch
        rows = on_device(batch.rows[batch.draws].astype(np.int64), step.logits.device)
        drawn = self._drawn = self._epilogue.run(step.logits, batch.sampling, rows, allowed)
        self._readback = self._device.to_host((drawn.tokens, drawn.finite))
        if self._readback is None:  # the next step may write its logits to the same place
            self._failed = drawn.outcome(drawn.finite)
        step.phases["sample"] = time.perf_counter() - started

    def result(self) -> StepResult:
        self.compute()
        if self._result is not None:
            return self._result
        step, drawn = self._logits, self._drawn
        assert step is not None and drawn is not None, "a step waits for its masks"
        tokens, finite = (drawn.tokens, drawn.finite) if self._readback is None else self._readback.wait()
        broken, failures = self._failed or drawn.outcome(finite)
        self._result = StepResult(
            tokens.numpy().astype(np.int32),
            broken,
            tuple((row, *failure) for row, failure in failures.items()) if failures else (),
            drawn.logprobs,
            drawn.healed,
            step.answers,
            step.phases,
        )
        return self._result
