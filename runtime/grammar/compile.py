"""Compiles constraints beside the decode loop, and keeps what is compiled: an LRU bounded by bytes, for all requests.

Decides how many are compiled at once; compiler.py decides for how long, and what becomes of a failure. What waits until
those in use leave room (in_use.py) has no process meanwhile. Each backend has worker processes of its own, of which one
takes short constraints only: few that take seconds keep others waiting. Keys of clients take turns (fair_queue.py). A
thread for each process waits for it and loads what it made. A refusal is remembered like a compiled constraint, a
timeout is not, nor is the death of a worker that the constraint did not cause: whoever asks after that tries again.
"""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from msgspec.structs import replace

from ramet.ipc.spec import Constraint
from ramet.runtime.access.shares import part
from ramet.runtime.grammar.compiled import Failed, GrammarCache, Loaded, size_of
from ramet.runtime.grammar.compiler import Compiler
from ramet.runtime.grammar.in_use import InUse
from ramet.runtime.grammar.worker import STACK_BYTES
from ramet.runtime.grammar.worker_process import CompileWorker
from ramet.runtime.workers.fair_queue import FairQueue

WORKERS = 2  # of a backend
SHORT = 1 << 12  # characters of a constraint that every worker takes, a power of two


@dataclass(slots=True, eq=False)
class Compiling:
    """For all who ask while a constraint is being compiled."""

    outcome: Loaded | Failed | None = None  # set before `ready` is called
    begun: bool = False
    num_requests: int = 0  # that wait for it
    places: dict[str, int] = field(default_factory=dict)  # in the queue, by owner


def is_short(constraint: Constraint) -> bool:
    return len(constraint.text) <= SHORT


class GrammarSource(Protocol):
    """Where the scheduler gets compiled constraints from."""

    def get(self, constraint: Constraint, owner: str = "") -> Loaded | Failed | Compiling:
        """For one request. If it is Loaded by now or later, `leave` is called once for it."""

    def leave(self, constraint: Constraint) -> None:
        """A request that had it has ended."""

    def give_up(self, constraint: Constraint, compiling: Compiling) -> None:
        """A request that was given this Compiling waits for it no longer; `leave` is not called for it."""

    def has_room(self, owner: str) -> bool:
        """Whether compiled constraints leave room for one more of this owner."""

    @property
    def num_bytes(self) -> int:
        """Of compiled constraints that requests have, estimated."""

    def take_compiled(self) -> list[Compiling]:
        """Each that has an outcome, once."""

    def close(self) -> None: ...


class CompilePool:
    """Threads and processes start with the first constraint."""

    def __init__(
        self,
        compiler: Compiler,
        ready: Callable[[], None],
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        """`ready` is called whenever a constraint is done, from the pool's threads, by one at a time. `begin` is the
        first thing that each of them calls.
        """
        limits = compiler.limits
        self._compiler, self._ready, self._begin = compiler, ready, begin
        self._cache, self._held_bytes = GrammarCache(limits.cache_bytes), limits.held_bytes
        self._in_use, self._max_of_one = InUse[Loaded](limits.held_bytes, limits.share), part(WORKERS, limits.share)
        self._lock, self._telling = threading.Lock(), threading.Lock()
        self._jobs: dict[str, FairQueue[Constraint]] = {}  # by backend
        self._workers: dict[str, list[CompileWorker]] = {}
        self._open: dict[Constraint, Compiling] = {}  # queued or being compiled
        self._num_open = Counter[str]()  # of each backend
        self._compiled: list[Compiling] = []  # that nobody has taken
        self._threads: list[threading.Thread] = []

    def get(self, constraint: Constraint, owner: str = "") -> Loaded | Failed | Compiling:
        """`owner`: whose share of the workers and of memory it takes; empty: there is no bound."""
        key = _key(constraint)
        with self._lock:
            if (compiling := self._open.get(key)) is None:
                found = self._in_use.find(key) or self._cache.get(key)
                if isinstance(found, Loaded):
                    self._in_use.add(key, found, size_of(key, found), owner)
                if found is not None:
                    return found
                self._open[key] = compiling = Compiling()
                self._num_open[key.backend] += 1
                self._start(key)
            compiling.num_requests += 1
            if not compiling.begun and owner not in compiling.places:  # whoever has room first has it compiled
                compiling.places[owner] = self._jobs[key.backend].put(owner, key, len(key.text))
            return compiling

    def take_compiled(self) -> list[Compiling]:
        with self._lock:
            compiled, self._compiled = self._compiled, []
            return compiled

    def leave(self, constraint: Constraint) -> None:
        with self._lock:
            is_free = self._in_use.leave(_key(constraint))
        if is_free:
            for jobs in [*self._jobs.values()]:
                jobs.wake()

    def give_up(self, constraint: Constraint, compiling: Compiling) -> None:
        with self._lock:
            if is_open := compiling.outcome is None:
                compiling.num_requests -= 1
                if not compiling.num_requests and not compiling.begun:
                    self._end(_key(constraint))
        if not is_open and isinstance(compiling.outcome, Loaded):
            self.leave(constraint)

    def has_room(self, owner: str) -> bool:
        return self._in_use.has_room(owner)

    @property
    def num_bytes(self) -> int:
        return self._in_use.num_bytes

    def close(self) -> None:
        """Ends the processes at once, and the threads; what a thread loads is not waited for."""
        with self._lock:
            self._compiler.closed = True
        for jobs in self._jobs.values():
            jobs.close()
        for workers in self._workers.values():
            for worker in workers:
                worker.close()
        self._compiler.close()

    def _start(self, constraint: Constraint) -> None:
        """A worker, if this one, which was just added, would wait although another may be begun for it."""
        jobs = self._jobs.setdefault(constraint.backend, FairQueue(self._max_of_one, self.has_room))
        workers = self._workers.setdefault(constraint.backend, [])
        most = min(WORKERS, self._num_open[constraint.backend])
        if self._compiler.closed or len(workers) >= most or (workers and not is_short(constraint)):
            return
        max_size = SHORT if workers else None
        workers.append(worker := self._compiler.worker())
        name = f"grammar-{constraint.backend}-{len(workers)}"
        thread = threading.Thread(target=self._serve, args=(jobs, worker, max_size), name=name, daemon=True)
        self._threads.append(thread)
        before = threading.stack_size(4 * STACK_BYTES)  # what a worker's stack was enough for is loaded on this one
        thread.start()
        threading.stack_size(before)

    def _serve(self, jobs: FairQueue[Constraint], worker: CompileWorker, max_size: int | None) -> None:
        self._begin()
        while (found := jobs.take(max_size)) is not None:
            owner, constraint = found
            try:
                self._run(worker, constraint, owner)
            finally:
                jobs.done(owner)

    def _run(self, worker: CompileWorker, constraint: Constraint, owner: str) -> None:
        with self._lock:
            compiling = self._open.get(constraint)
            if compiling is None or compiling.begun:  # nobody wants it, or it was taken from the place of another owner
                return
            compiling.begun = True
        outcome = self._compiler.run(worker, constraint)
        with self._lock:
            if isinstance(outcome, Loaded) and compiling.num_requests:
                self._in_use.add(constraint, outcome, size_of(constraint, outcome), owner, compiling.num_requests)
            if isinstance(outcome, Loaded) or outcome.status == 400:
                self._cache.put(constraint, outcome)
                self._cache.shrink(self._held_bytes, self._in_use)
            self._compiled.append(self._end(constraint))
            compiling.outcome = outcome
        if not self._compiler.closed:
            with self._telling:
                self._ready()

    def _end(self, constraint: Constraint) -> Compiling:
        """It is no longer open. The lock is held."""
        self._num_open[constraint.backend] -= 1
        compiling = self._open.pop(constraint)
        for owner, place in compiling.places.items():
            self._jobs[constraint.backend].remove(owner, place)
        return compiling


def _key(constraint: Constraint) -> Constraint:
    """The constraint without what makes no difference to what is compiled."""
    return replace(constraint, place="", after="", opens="")
