"""Steps on their way: handed to the device, given what their draw waits for, and applied when their result is there.

At most one step is in flight, which is what lets the scheduler plan the next one meanwhile.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from ramet.runtime.arrays import Ints
from ramet.runtime.engine.batch import LoadedRunner, Pending
from ramet.runtime.scheduler.features.masks import MaskThread
from ramet.runtime.scheduler.report import Reporter, StepTimes
from ramet.runtime.scheduler.results import Results
from ramet.runtime.scheduler.step import Step

Applied = Callable[[Step, float], None]  # a step, and when its planning began


@dataclass(frozen=True, slots=True)
class InFlight:
    """A step that was launched and whose result was not applied yet."""

    step: Step
    pending: Pending
    begun_s: float  # when its planning began, by the scheduler's clock
    plan_s: float
    filling: Future[Ints] | None = None  # its masks, if they are made meanwhile


class StepRunner:
    """`applied` is called after each step whose result was applied, before it is counted."""

    def __init__(
        self, runner: LoadedRunner, masks: MaskThread, results: Results, reporter: Reporter, applied: Applied,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._runner, self._masks, self._results, self._reporter = runner, masks, results, reporter
        self._applied, self.clock = applied, clock
        self.in_flight: InFlight | None = None

    def launch(self, step: Step, begun_s: float, plan_s: float, *, fill: bool) -> InFlight:
        """Hand a step to the device. `fill`: its masks are made while the device computes; no result is waited for."""
        is_filled = fill and step.batch.sampling.masked is not None
        filling = self._masks.fill(step) if is_filled else None
        return InFlight(step, self._runner.launch(step.batch), begun_s, plan_s, filling)

    def draw(self, launched: InFlight) -> None:
        """Give a step the masks that it waits for: every step before it has been applied."""
        if launched.step.batch.sampling.masked is not None:
            filling = launched.filling
            launched.pending.draw(self._masks.make(launched.step) if filling is None else filling.result())

    def apply_in_flight(self) -> None:
        """Wait for the step in flight, if there is one, and apply its result."""
        launched, self.in_flight = self.in_flight, None
        if launched is not None:
            self.apply(launched)

    def apply(self, launched: InFlight) -> None:
        waited = time.perf_counter()
        result = launched.pending.result()
        ran = time.perf_counter()
        self._results.apply(launched.step, result, launched.begun_s)
        self._applied(launched.step, launched.begun_s)
        times = StepTimes(launched.begun_s, launched.plan_s, run_s=ran - waited, apply_s=time.perf_counter() - ran)
        self._reporter.count(launched.step, result, times)

    def close(self) -> None:
        """Wait for the step that runs. What is in flight is not applied."""
        self._masks.close()
        self._runner.close()
