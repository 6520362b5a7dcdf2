"""One run of a program: what its calls share, and how all of them end at once."""

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple
from uuid import uuid4

from ramet.frontend.backends.base import Backend, CallFollowUp
from ramet.frontend.errors import CallFailed, Cancelled, ProgramError, SeenFailures
from ramet.frontend.hints import SharedPrefixes, tell_ended
from ramet.frontend.ir import SELECT_OPTIONS, Select
from ramet.frontend.results import Result
from ramet.frontend.speculation import SavedCalls
from ramet.ipc.loop_thread import LoopThread


class RunCancelled(ProgramError):
    """The reason of calls that did not run because their run was cancelled."""


class TimeIsUp(ProgramError, TimeoutError):
    pass


class RunSettings(NamedTuple):
    """What the calls of a run share."""

    sampling: Mapping[str, Any] = {}  # of calls that do not say otherwise
    options: Mapping[str, Any] = {}
    streaming: bool = False  # somebody reads texts as they grow
    spec_tokens: int | None = None  # of API speculation
    hints: bool = True  # prefixes that forks share are computed first, and held
    prefixes: SharedPrefixes | None = None  # of the batch that the run is one of

    def of_select(self, node: Select) -> dict[str, Any]:
        """A select's own options, and those of the run's parameters that a select has."""
        given = {**self.options, **self.sampling, **node.options}
        return {name: given[name] for name in SELECT_OPTIONS if name in given}


PROCESS, RUNS = uuid4().hex, count()


class ProgramBody:
    """The program's function while it runs. `thread`: where it runs, if other threads may ask for its variables."""

    def __init__(self) -> None:
        self.thread: int | None = None
        self.returned = Result()  # set when the function has returned, or raised
        self.finished = Result()  # set when its states are closed as well
        self.error: BaseException | None = None  # what the function raised

    @property
    def runs_here(self) -> bool:
        return self.thread == threading.get_ident()

    @property
    def runs_elsewhere(self) -> bool:
        return self.thread is not None and not self.runs_here


class Tasks:
    """The tasks of a run's streams, all of which run on the event loop of its backend."""

    def __init__(self, loop: LoopThread) -> None:
        self._loop = loop
        self._running: set[asyncio.Task[None]] = set()
        self._waiting: list[Result] = []  # to be set when no task is left

    def __bool__(self) -> bool:
        return bool(self._running)

    def keep(self, task: "asyncio.Task[None]", done: Callable[[], None]) -> None:
        """On the event loop. `done` is called when the task has ended, and may add the next one."""
        self._running.add(task)

        def ended(task: "asyncio.Task[None]") -> None:
            self._running.discard(task)
            done()
            if not self._running:
                waiting, self._waiting = self._waiting, []
                for each in waiting:
                    each.set(None)

        task.add_done_callback(ended)

    def cancel(self) -> None:
        for task in self._running:
            task.cancel()

    def idle(self) -> Result:
        """From any thread. The result becomes done when no task is left."""
        idle = Result()
        if self._loop.is_current():
            self._watch(idle)
        elif not self._loop.soon(lambda: self._watch(idle)):
            idle.set(None)
        return idle

    def _watch(self, idle: Result) -> None:
        if self._running:
            self._waiting.append(idle)
        else:
            idle.set(None)


class TimeLimit:
    """The time of a run that has a limit, or of one that a run with a limit called. On the backend's event loop.

    asyncio.timeout() would need a task that lasts as long as the run, and a plain function has none.
    """

    def __init__(self) -> None:
        self.timer: asyncio.TimerHandle | None = None
        self.is_over = False

    def begin(self, run: "Run", timeout_s: float) -> None:
        """The timer does not keep the run alive."""
        expire: Callable[[], Callable[[ProgramError], None] | None] = weakref.WeakMethod(run.cancel)
        reason = TimeIsUp(f"the run did not finish within {timeout_s:g} s")
        self.timer = asyncio.get_running_loop().call_later(timeout_s, _call, expire, reason)

    def end(self) -> None:
        self.is_over = True
        if self.timer is not None:
            self.timer.cancel()


class Run:
    """One run of a program. `cancel` ends its calls, and those of programs that its body called.

    While its body runs, or a stream has more to do, a call is expected to have a follow-up, and the backend is asked to
    keep what the call leaves behind. When nothing runs any more the backend is told. `kind` is the function's name.
    """

    tracer: Any = None  # of a function that is traced (trace.py) instead of run

    def __init__(
        self,
        backend: Backend,
        settings: RunSettings,
        outer: "Run | None" = None,
        timeout_s: float | None = None,
        kind: str = "",
    ) -> None:
        self.backend, self.settings, self._kind = backend, settings, kind
        self.name = f"{PROCESS}-{next(RUNS)}"
        self.body = ProgramBody()
        self.ended_by: ProgramError | None = None
        self.has_called = False
        self.seen = SeenFailures()
        self.failures: list[CallFailed] = []  # what ended its streams
        self.saved = SavedCalls()  # by API speculation
        self._outer = outer
        self._inner: weakref.WeakSet[Run] = weakref.WeakSet()  # of programs that its body called
        self._lock = threading.Lock()
        self._states = count()
        self._tasks = Tasks(backend.loop)
        self._is_followed = False  # some call may be
        limited = timeout_s is not None or (outer is not None and outer._limit is not None)
        limit = TimeLimit() if limited else None
        self._limit: TimeLimit | None = limit
        if outer is not None:
            with outer._lock:
                outer._inner.add(self)
                self.ended_by = outer.ended_by
        if timeout_s is not None and limit is not None:
            backend.loop.soon(lambda: limit.begin(self, timeout_s))

    def cancel(self, reason: ProgramError | None = None) -> None:
        """From any thread."""
        with self._lock:
            if self.ended_by is None:
                self.ended_by = reason or RunCancelled("the run was cancelled")
        self.backend.loop.soon(self._tasks.cancel)
        for run in self._programs():
            run.cancel(self.ended_by)

    def _programs(self) -> "list[Run]":
        """The runs of programs that its body called, and that somebody still has."""
        with self._lock:
            return list(self._inner)

    def keep(self, task: "asyncio.Task[None]", done: Callable[[], None]) -> None:
        """On the event loop: a task that is cancelled with the run. `done` is called when it has ended."""

        def ended() -> None:
            done()
            self._look_for_end()

        self._tasks.keep(task, ended)

    def failed(self, error: CallFailed) -> None:
        """On the event loop: it ended a stream of the run, or of a program that its body called and did not cancel."""
        self.failures.append(error)
        if self._outer is not None and not isinstance(error, Cancelled):
            self._outer.failed(error)

    def ends(self) -> Iterator[Result]:
        """Each becomes done when calls have: its own, and those of programs that its body called.

        To be waited for in turn. Programs that run on threads of their own make calls until these end.
        """
        yield self._tasks.idle()
        for run in self._programs():
            if run.body.runs_elsewhere:
                yield run.body.returned
            yield from run.ends()

    def new_state(self) -> int:
        """A number for a stream."""
        return next(self._states)

    def follow_up(self, state: int, has_more: bool) -> CallFollowUp | None:
        """On the event loop, before a call of a stream, which `has_more` to do, or had calls with a follow-up."""
        if not self.settings.hints or not self.backend.capabilities.follow_ups:
            return None
        if self.body.returned.done and not has_more:
            return None
        self._is_followed = True
        return CallFollowUp(self.name, state, self._kind)

    def end_body(self) -> None:
        """From any thread: the program's function has returned, or raised."""
        self.body.returned.set(None)
        if self._is_followed or self._limit is not None:
            self.backend.loop.soon(self._look_for_end)

    def _look_for_end(self) -> None:
        """The run's time ends with the last call, those of programs that it called included."""
        if not self.body.returned.done or self._tasks:
            return
        if self._limit is not None and not self._limit.is_over and all(map(_is_over, self._programs())):
            self._limit.end()
            if self._outer is not None:
                self._outer.backend.loop.soon(self._outer._look_for_end)
        if self._is_followed:
            self._is_followed = False
            tell_ended(self.backend, self.name)


def _is_over(run: Run) -> bool:
    return run._limit is None or run._limit.is_over


def _call(method: Callable[[], Callable[[ProgramError], None] | None], argument: ProgramError) -> None:
    if (alive := method()) is not None:
        alive(argument)
