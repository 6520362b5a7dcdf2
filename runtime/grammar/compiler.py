"""Compiles one constraint in a worker process, and says what became of it.

Decides for how long, how often it is tried, and what a failure is: a constraint that takes too long or too much memory
is the client's fault, a worker that somebody killed is not.
"""

import threading
from dataclasses import dataclass
from typing import Final, cast

from ramet.ipc.spec import Constraint
from ramet.runtime.errors import ConfigError, describe
from ramet.runtime.grammar.aside import Parsers
from ramet.runtime.grammar.backends import build
from ramet.runtime.grammar.base import BackendName, GrammarBackend, GrammarError, Vocabulary
from ramet.runtime.grammar.bounded import bounded
from ramet.runtime.grammar.byte_fsm import ByteFsm
from ramet.runtime.grammar.compiled import Failed, Loaded
from ramet.runtime.grammar.worker import CompileJob, ConstraintRefused
from ramet.runtime.grammar.worker_process import CompileWorker
from ramet.runtime.log import LOGGER
from ramet.runtime.workers.subordinate import NICENESS
from ramet.runtime.workers.worker_process import TRIES, TimedOut, WorkerEnded, tried

UNBOUNDED: Final = 1 << 62  # bytes


@dataclass(frozen=True, slots=True)
class CompileLimits:
    """What compiling may take, and how much of what is compiled stays.

    `timeout_s`: CPU time of a constraint. `cache_bytes`: of outcomes that are kept. `held_bytes`: of constraints that
    are in use or kept. `share`: the part of the workers and of memory that one key of a client may take.
    """

    timeout_s: float
    memory_mb: float
    cache_bytes: int
    held_bytes: int = UNBOUNDED
    share: float = 1.0


class Compiler:
    """For any number of threads, each with a worker of its own."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        limits: CompileLimits,
        *,
        wants_fsm: bool = False,
        niceness: int = NICENESS,
        parsers: Parsers | None = None,
    ) -> None:
        """`wants_fsm`: Loaded.fsm is wanted where there is one. `parsers`: where outputs are parsed that take more than
        a step may; None: nothing bounds them.
        """
        self.limits, self._vocabulary, self._wants_fsm, self._niceness = limits, vocabulary, wants_fsm, niceness
        self._parsers, self._building = parsers, threading.Lock()
        self._backends: dict[BackendName, GrammarBackend] = {}
        self.closed = False

    def worker(self) -> CompileWorker:
        return CompileWorker(self._vocabulary, self.limits.memory_mb, self._niceness)

    def close(self) -> None:
        """End what parses outputs, for good."""
        if self._parsers is not None:
            self._parsers.close()

    def run(self, worker: CompileWorker, constraint: Constraint) -> Loaded | Failed:
        try:
            job = CompileJob(constraint, self._wants_fsm)
            outcome = tried(lambda: worker.run(job, self.limits.timeout_s), lambda: self.closed, _again)
            if isinstance(outcome, ConstraintRefused):
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

    def _timed_out(self, constraint: Constraint, error: TimedOut) -> Failed:
        kind, most = constraint.kind.value, f"the {self.limits.timeout_s:g} s of --grammar-timeout-s"
        if error.starved:
            LOGGER.warning("the machine was too busy to compile a %s: given up", kind)
            return Failed(f"was not compiled: the machine was too busy to give it {most}", "try again later", 503)
        LOGGER.warning("compiling a %s took more than %g s of CPU time: given up", kind, self.limits.timeout_s)
        return Failed(f"takes longer than {most} to compile", status=504)

    def _ended(self, constraint: Constraint, error: WorkerEnded) -> Failed:
        if not self.closed:
            LOGGER.warning("the worker that compiled a %s ended with %s", constraint.kind.value, error)
        if error.from_outside:
            fact = f"was not compiled: {TRIES} compile workers ended with {error}, which may mean that memory ran out"
            return Failed(fact, status=503)
        most = f"the {self.limits.memory_mb:g} MiB of --grammar-memory-mb"
        fact = f"cannot be compiled: it needs more than {most}, or is too deep: the compile worker ended with {error}"
        return Failed(fact)

    def _backend(self, constraint: Constraint) -> GrammarBackend:
        """Built once: it reads the whole vocabulary."""
        name = cast(BackendName, constraint.backend)
        with self._building:
            if name not in self._backends:
                items = None if self._parsers is None else self._parsers.step_items
                self._backends[name] = build(name, self._vocabulary, items)
            return self._backends[name]


def _again(error: WorkerEnded) -> None:
    if error.returncode != 0:  # else it left by itself: its last job had left much memory in use
        LOGGER.warning("a compile worker ended with %s; its constraint is tried again", error)
