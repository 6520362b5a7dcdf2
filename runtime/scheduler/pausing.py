"""Pauses: no step is computed until generation goes on; whatever else arrives is done meanwhile.

Requests that arrive wait in the queue, as any that cannot run yet: they can be aborted, their constraints are compiled.
Those that run keep their rows and what they have computed, or are retracted. Knows no client and no device.
"""

from collections.abc import Callable

from ramet.ipc.control import ContinueGeneration, PauseGeneration
from ramet.runtime.scheduler.control import ControlHandler
from ramet.runtime.scheduler.queue import WaitingQueue
from ramet.runtime.scheduler.running import RunningSet

PAUSED = "paused by /pause_generation"
HELD = "waits for other weights: /update_weights_from_disk"


class Pausing:
    """`why` no step is computed; empty: steps go on."""

    apply_in_flight: Callable[[], None]  # ends the step that runs; set when the scheduler is composed

    def __init__(self, running: RunningSet, waiting: WaitingQueue) -> None:
        self._running, self._waiting = running, waiting
        self.why = self._paused = self._released = ""

    @property
    def why_no_steps(self) -> str:
        """Why no step is to be expected, whoever waits; empty: nothing keeps from one."""
        if self.why or len(self._running) or self._waiting.num_ready or not self._waiting.num_held:
            return self.why
        return HELD

    def register(self, control: ControlHandler) -> None:
        def pause(message: PauseGeneration) -> None:
            self.pause(retract=message.retract)
            control.reply(message.call, {})

        def go_on(message: ContinueGeneration) -> None:
            self._hold(paused="", released=self._released)
            control.reply(message.call, {})

        control.on(PauseGeneration, pause)
        control.on(ContinueGeneration, go_on)

    def pause(self, *, retract: bool) -> None:
        """Of a paused scheduler as well, whose running requests may be retracted later."""
        self.apply_in_flight()
        self._hold(paused=PAUSED, released=self._released)
        if retract:
            for request in [self._running.retract(each) for each in self._running]:
                self._waiting.add(request)

    def release(self, why: str) -> None:
        """Memory that steps need is not there; empty: it is."""
        self._hold(paused=self._paused, released=why)

    def _hold(self, *, paused: str, released: str) -> None:
        self._paused, self._released = paused, released
        self.why = paused or released
