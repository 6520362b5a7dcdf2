"""Memory that is given back to the system while nothing runs: when it may be, and that no step is computed meanwhile.

Requests that arrive wait as in a pause. Weights are read again by a thread, so that messages are handled meanwhile.
What cannot be resumed stays released.
"""

import logging
from typing import TYPE_CHECKING, Any

from ramet.ipc.control import MemoryTag, ReleaseMemory, ResumeMemory
from ramet.runtime.errors import ConfigError
from ramet.runtime.scheduler.control import ControlHandler
from ramet.runtime.scheduler.core import Core
from ramet.runtime.scheduler.features.background import Background, ReadFailure
from ramet.runtime.scheduler.step_runner import StepRunner

if TYPE_CHECKING:
    from ramet.runtime.engine.occupation import RunnerMemory

log = logging.getLogger("ramet")
RELEASED = "memory is released: waits for /resume_memory_occupation"


class MemoryOccupation:
    def __init__(
        self, source: "RunnerMemory | None", core: Core, background: Background, steps: StepRunner,
        control: ControlHandler,
    ) -> None:  # fmt: skip
        self._source, self._core, self._background, self._steps = source, core, background, steps
        self._control = control
        self._released = set[MemoryTag]()
        self._resuming = False  # weights are being read
        control.on(ReleaseMemory, self._release)
        control.on(ResumeMemory, self._resume)

    def _answer(self, call: int, refusal: str = "") -> None:
        self._control.reply(call, {"error": refusal} if refusal else {}, ok=not refusal)

    def _release(self, message: ReleaseMemory) -> None:
        assert not self._resuming, "the server asks for one change after the other"
        tags = set(message.tags) - self._released
        self._steps.apply_in_flight()
        if refusal := self._refusal(tags):
            self._answer(message.call, refusal)
            return
        if tags:
            assert self._source is not None
            with self._control.excused():
                if MemoryTag.KV_CACHE in tags:
                    self._control.flush()
                self._source.release(tags)
            self._hold(self._released | tags)
        self._answer(message.call)

    def _refusal(self, tags: set[MemoryTag]) -> str:
        if self._source is None:
            return "--runner is scripted: there is no model"
        if num := len(self._core.running):
            return f"{num} requests are running: memory is released when none runs (/pause_generation)"
        if not self._core.pausing.why and (num := len(self._core.waiting)):
            return f"{num} requests wait to run: memory is released when nothing runs (/pause_generation)"
        try:
            self._source.check(tags)
        except ConfigError as error:
            return str(error)
        return ""

    def _hold(self, released: set[MemoryTag]) -> None:
        log.info("memory that is released: %s", ", ".join(sorted(tag.value for tag in released)) or "none")
        self._released = released
        self._core.pausing.release(RELEASED if released else "")

    def _resume(self, message: ResumeMemory) -> None:
        assert not self._resuming, "the server asks for one change after the other"
        tags = set(message.tags) & self._released
        if not tags:
            self._answer(message.call)
            return
        assert self._source is not None
        try:
            self._source.check_room(tags)
        except ConfigError as error:
            self._answer(message.call, str(error))
            return
        if MemoryTag.WEIGHTS not in tags:
            return self._end(message, None)
        self._resuming = True

        def take(read: Any) -> None:
            self._resuming = False
            if isinstance(read, ReadFailure):
                self._answer(message.call, read.why)
            else:
                self._end(message, read)

        self._background.read("the weights cannot be read again", self._source.read, take)

    def _end(self, message: ResumeMemory, read: Any) -> None:
        assert self._source is not None
        tags = set(message.tags) & self._released
        try:
            with self._control.excused():
                self._source.resume(tags, read)
        except ConfigError as error:
            self._answer(message.call, str(error))
            return
        self._hold(self._released - tags)
        self._answer(message.call)
