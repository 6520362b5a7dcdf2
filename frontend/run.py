"""One run of a program: what its calls share, and how all of them end at once."""

import asyncio
import threading
import weakref
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, NamedTuple
from uuid import uuid4

from ramet.frontend.backends.base import Backend, FollowUp
from ramet.frontend.errors import ProgramError, Seen
from ramet.frontend.hints import SharedPrefixes, tell_ended


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


PROCESS, RUNS = uuid4().hex, count()


class Run:
    """One run of a program. `cancel` ends its calls, and those of programs that its body called.

    While its body runs, or a stream has more to do, a call is expected to have a follow-up, and the backend is asked to
    keep what the call leaves behind. When nothing runs any more the backend is told.
    """

    def __init__(
        self, backend: Backend, settings: Settings, outer: "Run | None" = None, timeout_s: float | None = None
    ) -> None:
        self.backend, self.settings = backend, settings
        self.ended_by: ProgramError | None = None
        self.has_called = False
        self.name = f"{PROCESS}-{next(RUNS)}"
        self._has_ended = self._is_followed = False  # the body; some call may be
        self._states = count()
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
            self._look_for_end()

        task.add_done_callback(ended)

    def new_state(self) -> int:
        """A number for a stream."""
        return next(self._states)

    def follow_up(self, state: int, has_more: bool) -> FollowUp | None:
        """On the event loop, before a call of a stream, which `has_more` to do."""
        if not self.settings.hints or not self.backend.capabilities.follow_ups or (self._has_ended and not has_more):
            return None
        self._is_followed = True
        return FollowUp(self.name, state)

    def end_body(self) -> None:
        """From any thread: the program's function has returned, or raised."""
        self._has_ended = True
        if self._is_followed:
            self.backend.loop.soon(self._look_for_end)

    def _look_for_end(self) -> None:
        if self._has_ended and self._is_followed and not self._tasks:
            self._is_followed = False
            tell_ended(self.backend, self.name)

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _expire(self, timeout_s: float) -> None:
        self.cancel(TimeIsUp(f"the run did not finish within {timeout_s:g} s"))


def _call(method: Callable[[], Callable[[float], None] | None], argument: float) -> None:
    if (alive := method()) is not None:
        alive(argument)
