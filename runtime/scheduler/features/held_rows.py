"""Rows that take part in no step for now: each turn looks whether what they wait for has come."""

from ramet.ipc.message import Uid
from ramet.runtime.scheduler.core import Core
from ramet.runtime.scheduler.feature import TurnFeature
from ramet.runtime.scheduler.features.late_tokens import LateTokens
from ramet.runtime.scheduler.running import Hold
from ramet.runtime.scheduler.step_runner import StepRunner


class HeldRows(TurnFeature):
    def __init__(self, core: Core, late: LateTokens, steps: StepRunner) -> None:
        self._running, self._results, self._late, self._steps = core.running, core.results, late, steps
        self.work: dict[Uid, Hold] = core.running.held

    @property
    def goes_on(self) -> bool:
        return True

    def begin_turn(self) -> None:
        others = len(self._running.decoding) or self._running.prefilling or self._steps.in_flight is not None
        for running, finish in self._late.settle(alone=not others):
            self._results.end(running, finish)
