"""Compiles constraints beside the decode loop, and keeps what is compiled: an LRU bounded by bytes, for all requests.

Decides how many are compiled at once, for how long, and what becomes of a failure; what waits until those in use leave
room (in_use.py) has no process meanwhile. Each backend has worker processes
of its own, of which one takes short constraints only: few that take seconds keep others waiting. Keys of clients take
turns (fair_queue.py). A thread for each process waits for it and loads what it made. A refusal is remembered like a
compiled constraint, a timeout is not, nor is the death of a worker that the constraint did not cause: whoever asks
after that tries again.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from msgspec.structs import replace

from ramet.ipc.spec import Constraint
from ramet.runtime.access.shares import part
from ramet.runtime.errors import ConfigError, describe
from ramet.runtime.grammar.aside import Parsers, bounded
from ramet.runtime.grammar.backends import build
from ramet.runtime.grammar.base import Backend, BackendName, Compiled, GrammarError, Vocabulary
from ramet.runtime.grammar.byte_fsm import ByteFsm
from ramet.runtime.grammar.in_use import InUse
from ramet.runtime.grammar.worker import STACK_BYTES, Job, Outcome, Refused
from ramet.runtime.grammar.worker_process import CompileWorker
from ramet.runtime.log import LOGGER
from ramet.runtime.workers.fair_queue import FairQueue
from ramet.runtime.workers.subordinate import NICENESS
from ramet.runtime.workers.worker_process import TRIES, TimedOut, WorkerEnded

WORKERS = 2  # of a backend
SHORT = 1 << 12  # characters of a constraint that every worker takes, a power of two
UNBOUNDED: Final = 1 << 62  # bytes
REFUSAL_BYTES = 1 << 12  # what a remembered refusal counts


@dataclass(frozen=True, slots=True)
class Loaded:
    """A constraint that is ready, and the library that fills its masks."""

    compiled: Compiled
    backend: Backend
    fsm: ByteFsm | None = None  # of a regular expression, where jumps ask for it


@dataclass(frozen=True, slots=True)
class Failed:
    """Why there is none. `status` is that of the requests: 400, 504 at the timeout, 503 where the machine was too
    busy or somebody kills workers, 500 where it is our fault.
    """

    fact: str
    hint: str = ""
    status: int = 400


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
    """`ready` is called whenever a constraint is done, from its threads, by one at a time. `begin` is the first
    thing that each of them calls.

    Threads and processes start with the first constraint. `held_bytes`: of those that are in use or kept.
    `wants_fsm`: Loaded.fsm is wanted where there is one.
    `parsers`: where outputs are parsed that take more than a step may; None: nothing bounds them.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        timeout_s: float,
        memory_mb: float,
        cache_bytes: int,
        held_bytes: int = UNBOUNDED,
        ready: Callable[[], None],
        begin: Callable[[], None] = lambda: None,
        wants_fsm: bool = False,
        niceness: int = NICENESS,
        parsers: Parsers | None = None,
        share: float = 1.0,
    ) -> None:
        self._vocabulary, self._ready, self._begin = vocabulary, ready, begin
        self._timeout_s, self._memory_mb = timeout_s, memory_mb
        self._parsers, self._step_items = parsers, None if parsers is None else parsers.step_items
        self._wants_fsm, self._niceness, self._cache = wants_fsm, niceness, GrammarCache(cache_bytes)
        self._held_bytes, self._in_use = held_bytes, InUse[Loaded](held_bytes, share)
        self._lock, self._building, self._telling = threading.Lock(), threading.Lock(), threading.Lock()
        self._backends: dict[BackendName, Backend] = {}
        self._jobs: dict[str, FairQueue[Constraint]] = {}  # by backend
        self._max_of_one = part(WORKERS, share)
        self._workers: dict[str, list[CompileWorker]] = {}
        self._closed = False
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
                    self._in_use.add(key, found, _size(key, found), owner)
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
            self._closed = True
        for jobs in self._jobs.values():
            jobs.close()
        for workers in self._workers.values():
            for worker in workers:
                worker.close()
        if self._parsers is not None:
            self._parsers.close()

    def _start(self, constraint: Constraint) -> None:
        """A worker, if this one, which was just added, would wait although another may be begun for it."""
        jobs = self._jobs.setdefault(constraint.backend, FairQueue(self._max_of_one, self.has_room))
        workers = self._workers.setdefault(constraint.backend, [])
        most = min(WORKERS, self._num_open[constraint.backend])
        if self._closed or len(workers) >= most or (workers and not is_short(constraint)):
            return
        max_size = SHORT if workers else None
        workers.append(worker := CompileWorker(self._vocabulary, self._memory_mb, self._niceness))
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
        outcome = self._compile(worker, constraint)
        with self._lock:
            if isinstance(outcome, Loaded) and compiling.num_requests:
                self._in_use.add(constraint, outcome, _size(constraint, outcome), owner, compiling.num_requests)
            if isinstance(outcome, Loaded) or outcome.status == 400:
                self._cache.put(constraint, outcome)
                self._cache.shrink(self._held_bytes, self._in_use)
            self._compiled.append(self._end(constraint))
            compiling.outcome = outcome
        if not self._closed:
            with self._telling:
                self._ready()

    def _end(self, constraint: Constraint) -> Compiling:
        """It is no longer open. The lock is held."""
        self._num_open[constraint.backend] -= 1
        compiling = self._open.pop(constraint)
        for owner, place in compiling.places.items():
            self._jobs[constraint.backend].remove(owner, place)
        return compiling

    def _compile(self, worker: CompileWorker, constraint: Constraint) -> Loaded | Failed:
        try:
            outcome = self._tried(worker, Job(constraint, self._wants_fsm))
            if isinstance(outcome, Refused):
                return Failed(outcome.fact, outcome.hint)
            backend = self._backend(constraint)
            fsm = ByteFsm.from_bytes(outcome.fsm) if outcome.fsm else None
            if self._parsers is None:
                return Loaded(backend.load(outcome.data), backend, fsm)
            return Loaded(bounded(backend, constraint.kind, outcome.data, self._parsers), backend, fsm)
        except TimedOut as error:
            return self._timed_out(constraint, error)
        except WorkerEnded as error:
            return self._ended(constraint, error)
        except (GrammarError, ConfigError) as error:
            return Failed(str(error))
        except Exception as error:  # noqa: BLE001 - logged, and its requests end with it
            LOGGER.exception("the %s backend failed to load what it compiled", constraint.backend)
            return Failed(f"cannot be loaded: {describe(error)}", status=500)

    def _tried(self, worker: CompileWorker, job: Job) -> Outcome:
        """Again where a worker was killed: another constraint may have taken the machine's memory."""
        for _ in range(TRIES - 1):
            try:
                return worker.run(job, self._timeout_s)
            except WorkerEnded as error:
                if not error.from_outside or self._closed:
                    raise
                if error.returncode != 0:  # else it left by itself: its last job had left much memory in use
                    LOGGER.warning("a compile worker ended with %s; its constraint is tried again", error)
        return worker.run(job, self._timeout_s)

    def _timed_out(self, constraint: Constraint, error: TimedOut) -> Failed:
        kind, most = constraint.kind.value, f"the {self._timeout_s:g} s of --grammar-timeout-s"
        if error.starved:
            LOGGER.warning("the machine was too busy to compile a %s: given up", kind)
            return Failed(f"was not compiled: the machine was too busy to give it {most}", "try again later", 503)
        LOGGER.warning("compiling a %s took more than %g s of CPU time: given up", kind, self._timeout_s)
        return Failed(f"takes longer than {most} to compile", status=504)

    def _ended(self, constraint: Constraint, error: WorkerEnded) -> Failed:
        if not self._closed:
            LOGGER.warning("the worker that compiled a %s ended with %s", constraint.kind.value, error)
        if error.from_outside:
            fact = f"was not compiled: {TRIES} compile workers ended with {error}, which may mean that memory ran out"
            return Failed(fact, status=503)
        most = f"the {self._memory_mb:g} MiB of --grammar-memory-mb"
        fact = f"cannot be compiled: it needs more than {most}, or is too deep: the compile worker ended with {error}"
        return Failed(fact)

    def _backend(self, constraint: Constraint) -> Backend:
        """Built once: it reads the whole vocabulary."""
        name = cast(BackendName, constraint.backend)
        with self._building:
            if name not in self._backends:
                self._backends[name] = build(name, self._vocabulary, self._step_items)
            return self._backends[name]


class GrammarCache:
    """Constraint -> what became of it; the least recently used go when `max_bytes` are passed."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._num_bytes = max_bytes, 0
        self._entries: OrderedDict[Constraint, Loaded | Failed] = OrderedDict()

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def get(self, key: Constraint) -> Loaded | Failed | None:
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: Constraint, value: Loaded | Failed) -> None:
        """The newest one stays, whatever its size: somebody waits for it."""
        if key in self._entries:
            self._num_bytes -= _size(key, self._entries.pop(key))
        self._entries[key] = value
        self._num_bytes += _size(key, value)
        while self._num_bytes > self._max_bytes and len(self._entries) > 1:
            self._num_bytes -= _size(*self._entries.popitem(last=False))

    def shrink(self, max_bytes: int, in_use: InUse[Loaded]) -> None:
        """Forget those that no request has, until all take at most so many bytes."""
        if in_use.num_bytes + self._num_bytes <= max_bytes:
            return
        kept = [(key, _size(key, value)) for key, value in self._entries.items() if key not in in_use]
        over = in_use.num_bytes + sum(size for _, size in kept) - max_bytes
        for key, size in kept:
            if over <= 0:
                return
            del self._entries[key]
            self._num_bytes, over = self._num_bytes - size, over - size


def _key(constraint: Constraint) -> Constraint:
    """The constraint without what makes no difference to what is compiled."""
    return replace(constraint, place="", after="", opens="")


def _size(key: Constraint, value: Loaded | Failed) -> int:
    return len(key.text) + (_loaded_bytes(value) if isinstance(value, Loaded) else REFUSAL_BYTES)


def _loaded_bytes(value: Loaded) -> int:
    return value.compiled.num_bytes + (value.fsm.num_bytes if value.fsm is not None else 0)
