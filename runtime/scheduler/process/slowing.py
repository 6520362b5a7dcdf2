"""Steps that are slowed down on purpose, to see what a slow server does to others. Decides nothing of a step."""

import time
from collections.abc import Callable

from ramet.ipc.control import SlowDown
from ramet.runtime.engine.batch import StepResult
from ramet.runtime.scheduler.control import ControlHandler
from ramet.runtime.scheduler.step import Step, StepListener, StepTimes


class SlowSteps:
    """Sleeps after each step, for as long as it was told to. No step is expected meanwhile."""

    def __init__(
        self, control: ControlHandler, listeners: list[StepListener], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._control, self._listeners, self._sleep = control, listeners, sleep
        self._sleep_s = 0.0
        control.on(SlowDown, self._slow_down)

    def _slow_down(self, message: SlowDown) -> None:
        if self._sleep_s:
            self._listeners.remove(self._after_step)
        self._sleep_s = message.sleep_s or 0.0
        if self._sleep_s:
            self._listeners.append(self._after_step)
        self._control.reply(message.call, {})

    def _after_step(self, step: Step, result: StepResult, times: StepTimes) -> None:
        with self._control.excused():
            self._sleep(self._sleep_s)
