"""Between two steps: what waiting requests lack of features of media is computed, as far as a turn has room for it."""

from collections.abc import Sized

from ramet.runtime.scheduler.core import Core
from ramet.runtime.scheduler.feature import TurnFeature
from ramet.runtime.scheduler.features.media import Towers
from ramet.runtime.scheduler.features.pace import Pace
from ramet.runtime.scheduler.step_runner import StepRunner


class TowerTurns(TurnFeature):
    """`bound`: on the time of a step; None: there is none."""

    def __init__(self, core: Core, towers: Towers, bound: Pace | None, steps: StepRunner) -> None:
        self._steps = steps
        self._running, self._results, self._towers, self._bound = core.running, core.results, towers, bound
        self._spent_s = 0.0  # what towers took in this turn

    @property
    def work(self) -> Sized:  # type: ignore[override]
        return (True,) if self._towers.has_work or self._spent_s else ()

    @property
    def goes_on(self) -> bool:
        return self._towers.has_work

    def flush(self) -> None:
        self._towers.forget()

    def begin_turn(self) -> None:
        self._spent_s = self._compute()
        if self._bound is not None:
            self._bound.spent_s = self._spent_s

    def _compute(self) -> float:
        """Returns the seconds it took. With a bound on steps, the turn after it is that of running requests."""
        bound = self._bound if self._running.num_in_output else None
        if not self._towers.has_work or (bound is not None and self._spent_s):
            return 0.0
        self._steps.apply_in_flight()
        self._results.send()
        if bound is None or not self._running.num_in_output:
            return self._towers.compute()
        return self._towers.compute(bound.room_s(self._running.table, self._running.decoding))
