"""One run of a program: what its calls share, and how all of them end at once."""

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple
from uuid import uuid4

from ramet.frontend.backends.base import Backend, FollowUp
from ramet.frontend.errors import CallFailed, Cancelled, ProgramError, Seen
from ramet.frontend.hints import SharedPrefixes, tell_ended
from ramet.frontend.ir import SELECT_OPTIONS, Select
from ramet.frontend.results import Result
from ramet.frontend.speculation import Saved


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

    def of_select(self, node: Select) -> dict[str, Any]:
        """Of the run's parameters those that a select has, and its own."""
        given = {**self.options, **self.sampling, **node.options}
        return {name: given[name] for name in SELECT_OPTIONS if name in given}


PROCESS, RUNS = uuid4().hex, count()


class Run:
    """One run of a program. `cancel` ends its calls, and those of programs that its body called.

    While its body runs, or a stream has more to do, a call is expected to have a follow-up, and the backend is asked to
    keep what the call leaves behind. When nothing runs any more the backend is told. `kind` is the function's name.
    """

    tracer: Any = None  # of a function that is traced (trace.py) instead of run

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        outer: "Run | None" = None,
        timeout_s: float | None = None,
        kind: str = "",
    ) -> None:
        self.backend, self.settings, self._kind = backend, settings, kind
        self.ended_by: ProgramError | None = None
        self.has_called = False
        self.name = f"{PROCESS}-{next(RUNS)}"
        self._has_ended = self._is_followed = False  # the body; some call may be
        self._states = count()
        self.seen = Seen()
        self.failures: list[CallFailed] = []  # what ended its streams
        self._outer, self._timeout_s = outer, timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._idle: list[Result] = []  # to be set when no call is left
        self._tasks: set[asyncio.Task[None]] = set()
        self._inner: weakref.WeakSet[Run] = weakref.WeakSet()  # of programs that its body called
        self._num_open = 0  # of those, where somebody's time is limited
        self._is_limited: bool = timeout_s is not None or (outer is not None and outer._is_limited)
        self._is_over = False
        self.saved = Saved()  # by API speculation
        self.body_ended = Result()
        self.body_thread: int | None = None  # where the body has a thread of its own
        self._lock = threading.Lock()
        if outer is not None:
            with outer._lock:
                outer._inner.add(self)
                outer._num_open += 1
                self.ended_by = outer.ended_by
        if timeout_s is not None:
            backend.loop.soon(lambda: self._begin_timer(timeout_s))

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
            if not self._tasks:
                idle, self._idle = self._idle, []
                for each in idle:
                    each.set(None)
            self._look_for_end()

        task.add_done_callback(ended)

    def failed(self, error: CallFailed) -> None:
        """On the event loop: it ended a stream of the run, or of a program that its body called and did not cancel."""
        self.failures.append(error)
        if self._outer is not None and not isinstance(error, Cancelled):
            self._outer.failed(error)

    def ends(self) -> Iterator[Result]:
        """Each becomes done when calls have: its own, and those of programs that its body called.

        To be waited for in turn. Programs that run on threads of their own make calls until these end.
        """
        yield self.idle()
        with self._lock:
            inner = list(self._inner)
        for run in inner:
            if run.body_thread not in (None, threading.get_ident()):
                yield run.body_ended
            yield from run.ends()

    def idle(self) -> Result:
        """From any thread. It becomes done when none of the run's calls is left."""
        idle = Result()
        if self.backend.loop.is_current():
            self._watch(idle)
        elif not self.backend.loop.soon(lambda: self._watch(idle)):
            idle.set(None)
        return idle

    def _watch(self, idle: Result) -> None:
        """On the event loop."""
        if not self._tasks:
            idle.set(None)
        else:
            self._idle.append(idle)

    def new_state(self) -> int:
        """A number for a stream."""
        return next(self._states)

    def follow_up(self, state: int, has_more: bool) -> FollowUp | None:
        """On the event loop, before a call of a stream, which `has_more` to do, or had calls with a follow-up."""
        if not self.settings.hints or not self.backend.capabilities.follow_ups or (self._has_ended and not has_more):
            return None
        self._is_followed = True
        return FollowUp(self.name, state, self._kind)

    def end_body(self) -> None:
        """From any thread: the program's function has returned, or raised."""
        self._has_ended = True
        self.body_ended.set(None)
        if self._is_followed or self._is_limited:
            self.backend.loop.soon(self._look_for_end)

    def _look_for_end(self) -> None:
        """Its time ends with the last call, those of programs that it called included."""
        if not self._has_ended or self._tasks:
            return
        if not self._num_open and self._is_limited and not self._is_over:
            self._is_over = True
            if self._timer is not None:
                self._timer.cancel()
            if self._outer is not None:
                self._outer.backend.loop.soon(self._outer._inner_is_over)
        if self._is_followed:
            self._is_followed = False
            tell_ended(self.backend, self.name)

    def _inner_is_over(self) -> None:
        with self._lock:
            self._num_open -= 1
        self._look_for_end()

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _begin_timer(self, timeout_s: float) -> None:
        """The timer does not keep the run alive."""
        expire: Callable[[], Callable[[float], None] | None] = weakref.WeakMethod(self._expire)
        self._timer = asyncio.get_running_loop().call_later(timeout_s, _call, expire, timeout_s)

    def _expire(self, timeout_s: float) -> None:
        self.cancel(TimeIsUp(f"the run did not finish within {timeout_s:g} s"))


def _call(method: Callable[[], Callable[[float], None] | None], argument: float) -> None:
    if (alive := method()) is not None:
        alive(argument)
