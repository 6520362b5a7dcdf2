"""Memory that is given back to the system while nothing runs: when it may be, and that no step is computed meanwhile.

Requests that arrive wait as in a pause. Weights are read again by a thread, so that messages are handled meanwhile.
What cannot be resumed stays released.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from queue import SimpleQueue
from typing import Any

from ramet.ipc.control import MemoryTag, ReleaseMemory, ResumeMemory
from ramet.runtime.engine.batch import MemorySource
from ramet.runtime.errors import ConfigError, describe
from ramet.runtime.scheduler.control import ControlHandler
from ramet.runtime.scheduler.pausing import Pausing
from ramet.runtime.scheduler.queue import WaitingQueue
from ramet.runtime.scheduler.running import RunningSet

log = logging.getLogger("ramet")
RELEASED = "memory is released: waits for /resume_memory_occupation"


class MemoryOccupation:
    """`apply_in_flight` ends the step that runs, `forget` every cached prefix that no running request leases. `thread`
    reads, and after it `wake` has `settle` called on the scheduler's.
    """

    def __init__(
        self, source: MemorySource | None, running: RunningSet, waiting: WaitingQueue, pausing: Pausing,
        apply_in_flight: Callable[[], None], forget: Callable[[], None], thread: Executor, wake: Callable[[], None],
    ) -> None:  # fmt: skip
        self._source, self._running, self._waiting, self._pausing = source, running, waiting, pausing
        self._apply_in_flight, self._forget = apply_in_flight, forget
        self._thread, self._wake = thread, wake
        self._released = set[MemoryTag]()
        self._resuming: ResumeMemory | None = None  # whose weights are being read
        self._read: SimpleQueue[tuple[Any, str]] = SimpleQueue()  # weights, or why there are none

    def register(self, control: ControlHandler) -> None:
        self._control = control
        control.on(ReleaseMemory, self._release)
        control.on(ResumeMemory, self._resume)

    def _answer(self, call: int, refusal: str = "") -> None:
        self._control.reply(call, {"error": refusal} if refusal else {}, ok=not refusal)

    def _release(self, message: ReleaseMemory) -> None:
        assert self._resuming is None, "the server asks for one change after the other"
        tags = set(message.tags) - self._released
        self._apply_in_flight()
        if refusal := self._refusal(tags):
            self._answer(message.call, refusal)
            return
        if tags:
            assert self._source is not None
            with self._control.excused():
                if MemoryTag.KV_CACHE in tags:
                    self._forget()
                self._source.release(tags)
            self._hold(self._released | tags)
        self._answer(message.call)

    def _refusal(self, tags: set[MemoryTag]) -> str:
        if self._source is None:
            return "--runner is scripted: there is no model"
        if num := len(self._running):
            return f"{num} requests are running: memory is released when none runs (/pause_generation)"
        if not self._pausing.why and (num := len(self._waiting)):
            return f"{num} requests wait to run: memory is released when nothing runs (/pause_generation)"
        try:
            self._source.check(tags)
        except ConfigError as error:
            return str(error)
        return ""

    def _hold(self, released: set[MemoryTag]) -> None:
        log.info("memory that is released: %s", ", ".join(sorted(tag.value for tag in released)) or "none")
        self._released = released
        self._pausing.release(RELEASED if released else "")

    def _resume(self, message: ResumeMemory) -> None:
        assert self._resuming is None, "the server asks for one change after the other"
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
        if MemoryTag.WEIGHTS in tags:
            self._resuming = message
            self._thread.submit(self._read_them, self._source)
        else:
            self._end(message, None)

    def _read_them(self, source: MemorySource) -> None:
        self._read.put(_tried(source))
        self._wake()

    def settle(self) -> None:
        """Something was read, maybe weights that were released."""
        if self._resuming is None or self._read.empty():
            return
        message, self._resuming = self._resuming, None
        read, error = self._read.get()
        if error:
            self._answer(message.call, error)
        else:
            self._end(message, read)

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


def _tried(source: MemorySource) -> tuple[Any, str]:
    """Weights, or why there are none."""
    try:
        return source.read(), ""
    except ConfigError as error:
        return None, str(error)
    except Exception as error:  # files may have been changed by anybody: nothing in them may end the scheduler
        log.exception("the released weights cannot be read")
        return None, f"the weights cannot be read again: {describe(error)}"
