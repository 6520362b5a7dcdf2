"""Steps on their way: handed to the device, given what their draw waits for, and applied when their result is there.

At most one step is in flight, which is what lets the scheduler plan the next one meanwhile.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from ramet.runtime.arrays import Ints
from ramet.runtime.engine.batch import LoadedRunner, Pending
from ramet.runtime.scheduler.feature import LateInput
from ramet.runtime.scheduler.results import Results
from ramet.runtime.scheduler.step import Step, StepListener, StepTimes


@dataclass(frozen=True, slots=True)
class _Launched:
    """What becomes of a step that the device has and whose result was not applied yet."""

    pending: Pending
    begun_s: float  # when its planning began, by the scheduler's clock
    plan_s: float
    filling: Future[Ints] | None = None  # what its draw waits for, if that is made meanwhile


class StepRunner:
    """`late` makes what draws wait for. `listeners` are called after each step whose result was applied."""

    def __init__(self, runner: LoadedRunner, late: LateInput, results: Results, clock: Callable[[], float]) -> None:
        self._runner, self._late, self._results, self.clock = runner, late, results, clock
        self.listeners: list[StepListener] = []
        self._launched: dict[int, _Launched] = {}  # by number of the step
        self.in_flight: Step | None = None

    def launch(self, step: Step, begun_s: float, plan_s: float, *, fill: bool) -> None:
        """Hand a step to the device. `fill`: no result is waited for, so what its draw waits for is made meanwhile."""
        filling = self._late.begin(step) if fill and step.draws_late else None
        self._launched[step.number] = _Launched(self._runner.launch(step.batch), begun_s, plan_s, filling)

    def draw(self, step: Step) -> None:
        """Give a step that draws late what its draw waits for: every step before it has been applied."""
        launched = self._launched[step.number]
        filling = launched.filling
        launched.pending.draw(self._late.make(step) if filling is None else filling.result())

    def runs(self, step: Step) -> bool:
        """Whether a step is being computed while the host goes on."""
        return self._launched[step.number].pending.runs

    def apply_in_flight(self) -> None:
        """Wait for the step in flight, if there is one, and apply its result."""
        step, self.in_flight = self.in_flight, None
        if step is not None:
            self.apply(step)

    def apply(self, step: Step) -> None:
        """Wait for the result of a step, and apply it."""
        launched = self._launched.pop(step.number)
        waited = time.perf_counter()
        result = launched.pending.result()
        ran = time.perf_counter()
        self._results.apply(step, result, launched.begun_s)
        times = StepTimes(launched.begun_s, launched.plan_s, run_s=ran - waited, apply_s=time.perf_counter() - ran)
        for listener in [*self.listeners]:  # one may leave
            listener(step, result, times)

    def close(self) -> None:
        """Wait for the step that runs. What is in flight is not applied."""
        self._late.close()
        self._runner.close()
