"""One run of a program: what its calls share, and how all of them end at once."""

import asyncio
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ramet.frontend.backends.base import Backend
from ramet.frontend.errors import ProgramError, Seen
from ramet.frontend.hints import SharedPrefixes


class RunCancelled(ProgramError):
    """The reason of calls that did not run because their run was cancelled."""


class TimeIsUp(ProgramError, TimeoutError):
    pass


class Settings(NamedTuple):
    """What the calls of a run share."""

    sampling: Mapping[str, Any] = {}  # of calls that do not say otherwise
    options: Mapping[str, Any] = {}
    streaming: bool = False  # somebody reads texts as they grow
    spec_tokens: int | None = None  # of API speculation
    hints: bool = True  # prefixes that forks share are computed first, and held
    prefixes: SharedPrefixes | None = None  # of the batch that the run is one of


class Run:
    """One run of a program. `cancel` ends its calls, and those of programs that its body called."""

    def __init__(
        self, backend: Backend, settings: Settings, outer: "Run | None" = None, timeout_s: float | None = None
    ) -> None:
        self.backend, self.settings = backend, settings
        self.ended_by: ProgramError | None = None
        self.has_called = False
        self.seen = Seen()
        self._tasks: set[asyncio.Task[None]] = set()
        self._inner: weakref.WeakSet[Run] = weakref.WeakSet()  # of programs that its body called
        self._lock = threading.Lock()
        if outer is not None:
            with outer._lock:
                outer._inner.add(self)
                self.ended_by = outer.ended_by
        if timeout_s is not None:
            ended: Callable[[], Callable[[float], None] | None] = weakref.WeakMethod(self._expire)
            backend.loop.soon(lambda: asyncio.get_running_loop().call_later(timeout_s, _call, ended, timeout_s))

    def cancel(self, reason: ProgramError | None = None) -> None:
        """From any thread."""
        with self._lock:
            if self.ended_by is None:
                self.ended_by = reason or RunCancelled("the run was cancelled")
            inner = list(self._inner)
        self.backend.loop.soon(self._cancel_tasks)
        for run in inner:
            run.cancel(self.ended_by)

    def keep(self, task: "asyncio.Task[None]", done: Callable[[], None]) -> None:
        """On the event loop: a task that is cancelled with the run. `done` is called when it has ended."""
        self._tasks.add(task)

        def ended(task: "asyncio.Task[None]") -> None:
            self._tasks.discard(task)
            done()

        task.add_done_callback(ended)

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _expire(self, timeout_s: float) -> None:
        self.cancel(TimeIsUp(f"the run did not finish within {timeout_s:g} s"))


def _call(method: Callable[[], Callable[[float], None] | None], argument: float) -> None:
    if (alive := method()) is not None:
        alive(argument)
