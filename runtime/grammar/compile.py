"""Compiles constraints beside the decode loop, and keeps what is compiled: an LRU bounded by bytes, for all requests.

Decides how many are compiled at once, for how long, and what becomes of a failure. A thread for each worker process
waits for it, kills it at the timeout and loads what it made. A refusal is remembered like a compiled constraint, a
timeout is not: the next request tries again.
"""

import os
import queue
import selectors
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

import msgspec
from msgspec.structs import replace

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.errors import ConfigError, describe
from ramet.runtime.grammar.backends import build
from ramet.runtime.grammar.base import Backend, BackendName, Compiled, GrammarError, Vocabulary
from ramet.runtime.grammar.byte_fsm import ByteFsm
from ramet.runtime.grammar.worker import LENGTH, Job, Outcome, Refused
from ramet.runtime.log import LOGGER

WORKERS = 2
START_TIMEOUT_S = 120.0  # of a worker process that loads its tokenizer
REFUSAL_BYTES = 1 << 12  # what a remembered refusal counts
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Loaded:
    """A constraint that is ready, and the library that fills its masks."""

    compiled: Compiled
    backend: Backend
    fsm: ByteFsm | None = None  # of a regular expression, where jumps ask for it


@dataclass(frozen=True, slots=True)
class Failed:
    """Why there is none. `status` is that of the requests: 400, or 504 at the timeout."""

    fact: str
    hint: str = ""
    status: int = 400


class GrammarSource(Protocol):
    """Where the scheduler gets compiled constraints from."""

    def get(self, constraint: Constraint) -> Loaded | Failed | None:
        """None: it is being compiled; ask again when `ready` was called."""

    def close(self) -> None: ...


class _TimedOut(Exception):
    """The worker was killed."""


class _Worker:
    """One worker process, started when it is needed and again after it was killed. Used by one thread."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        eos = ",".join(map(str, sorted(vocabulary.eos_ids)))
        module = "ramet.runtime.grammar.worker"
        self._command = [sys.executable, "-m", module, str(vocabulary.folder), str(vocabulary.size), eos]
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._loaded: set[str] = set()  # backends whose library it has

    def run(self, job: Job, timeout_s: float) -> Outcome:
        """Raises _TimedOut, or EOFError where the process ended."""
        if self._process is None:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._read(START_TIMEOUT_S)
            self._loaded.clear()
        backend = job.constraint.backend
        if backend not in self._loaded:  # importing a library may take longer than any constraint
            self._ask(Job(Constraint(ConstraintKind.REGEX, "a", backend=backend), False), START_TIMEOUT_S)
            self._loaded.add(backend)
        return self._ask(job, timeout_s)

    def _ask(self, job: Job, timeout_s: float) -> Outcome:
        data = msgspec.msgpack.encode(job)
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(LENGTH.pack(len(data)) + data)
            self._process.stdin.flush()
        except BrokenPipeError:
            self.kill()
            raise EOFError from None
        return self._read(timeout_s)

    def interrupt(self) -> None:
        """From another thread: whatever runs fails with EOFError."""
        process = self._process
        if process is not None:
            process.kill()

    def kill(self) -> None:
        if self._process is None:
            return
        process, self._process, self._buffer = self._process, None, b""
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()

    def _read(self, timeout_s: float) -> Outcome:
        """The next frame."""
        assert self._process is not None and self._process.stdout is not None
        deadline, descriptor = time.monotonic() + timeout_s, self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while True:
                if len(self._buffer) >= LENGTH.size:
                    end = LENGTH.size + LENGTH.unpack(self._buffer[: LENGTH.size])[0]
                    if len(self._buffer) >= end:
                        frame, self._buffer = self._buffer[LENGTH.size : end], self._buffer[end:]
                        outcome: Outcome = msgspec.msgpack.decode(frame, type=Outcome)
                        return outcome
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    self.kill()
                    raise _TimedOut
                data = os.read(descriptor, CHUNK)
                if not data:
                    self.kill()
                    raise EOFError
                self._buffer += data


class CompilePool:
    """`ready` is called whenever a constraint is done, from its threads, by one at a time.

    Threads and processes start with the first constraint. `wants_fsm`: Loaded.fsm is wanted where there is one.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        timeout_s: float,
        cache_bytes: int,
        ready: Callable[[], None],
        wants_fsm: bool = False,
    ) -> None:
        self._vocabulary, self._timeout_s, self._ready = vocabulary, timeout_s, ready
        self._wants_fsm, self._cache = wants_fsm, GrammarCache(cache_bytes)
        self._jobs: queue.SimpleQueue[Constraint | None] = queue.SimpleQueue()
        self._lock, self._building = threading.Lock(), threading.Lock()
        self._backends: dict[BackendName, Backend] = {}
        self._workers: list[_Worker] = []
        self._closed = False
        self._open: set[Constraint] = set()  # queued or being compiled
        self._timed_out: dict[Constraint, Failed] = {}  # told to whoever asks next
        self._threads: list[threading.Thread] = []

    def get(self, constraint: Constraint) -> Loaded | Failed | None:
        key = replace(constraint, place="", after="")
        with self._lock:
            found = self._timed_out.pop(key, None) or self._cache.get(key)
            if found is None and key not in self._open:
                self._open.add(key)
                self._jobs.put(key)
                if len(self._threads) < min(WORKERS, len(self._open)):
                    self._start()
        return found

    def close(self) -> None:
        """Ends the threads and their processes; what runs is not waited for."""
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for worker in self._workers:
            worker.interrupt()

    def _start(self) -> None:
        worker = _Worker(self._vocabulary)
        name = f"grammar-{len(self._threads)}"
        thread = threading.Thread(target=self._serve, args=(worker,), name=name, daemon=True)
        self._workers.append(worker)
        self._threads.append(thread)
        thread.start()

    def _serve(self, worker: _Worker) -> None:
        while (constraint := self._jobs.get()) is not None and not self._closed:
            outcome = self._compile(worker, constraint)
            with self._lock:
                self._open.discard(constraint)
                if isinstance(outcome, Failed) and outcome.status != 400:
                    self._timed_out[constraint] = outcome
                else:
                    self._cache.put(constraint, outcome)
                self._ready()
        worker.kill()

    def _compile(self, worker: _Worker, constraint: Constraint) -> Loaded | Failed:
        try:
            outcome = worker.run(Job(constraint, self._wants_fsm), self._timeout_s)
            if isinstance(outcome, Refused):
                return Failed(outcome.fact, outcome.hint)
            backend = self._backend(constraint)
            return Loaded(backend.load(outcome.data), backend, ByteFsm.from_bytes(outcome.fsm) if outcome.fsm else None)
        except _TimedOut:
            LOGGER.warning("compiling a %s took longer than %g s: given up", constraint.kind.value, self._timeout_s)
            return Failed(f"takes longer than the {self._timeout_s:g} s of --grammar-timeout-s to compile", status=504)
        except EOFError:
            return Failed("cannot be compiled: the compiler ended, most likely for want of memory")
        except (GrammarError, ConfigError) as error:
            return Failed(str(error))
        except Exception as error:  # noqa: BLE001 - logged, and its requests end with it
            LOGGER.exception("the %s backend failed to load what it compiled", constraint.backend)
            return Failed(f"cannot be loaded: {describe(error)}", status=500)

    def _backend(self, constraint: Constraint) -> Backend:
        """Built once: it reads the whole vocabulary."""
        name = cast(BackendName, constraint.backend)
        with self._building:
            if name not in self._backends:
                self._backends[name] = build(name, self._vocabulary)
            return self._backends[name]


class GrammarCache:
    """Constraint -> what became of it; the least recently used go when `most_bytes` are passed."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._num_bytes = most_bytes, 0
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
        self._entries[key] = value
        self._num_bytes += _size(key, value)
        while self._num_bytes > self._most_bytes and len(self._entries) > 1:
            self._num_bytes -= _size(*self._entries.popitem(last=False))


def _size(key: Constraint, value: Loaded | Failed) -> int:
    return len(key.text) + (_loaded_bytes(value) if isinstance(value, Loaded) else REFUSAL_BYTES)


def _loaded_bytes(value: Loaded) -> int:
    return value.compiled.num_bytes + (value.fsm.num_bytes if value.fsm is not None else 0)
