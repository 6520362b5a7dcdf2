"""`run_batch`: one program over many sets of arguments, many at once, without losing a result.

Decides how many run beside each other, what a failure does to the rest, and in which order results come. A plain
function runs on one of a bounded number of threads, an async one as a task; a program is done when its last call is.
"""

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from itertools import islice
from queue import SimpleQueue
from typing import Any, NamedTuple

from tqdm import tqdm

from ramet.frontend.errors import BatchFailed, ProgramError
from ramet.frontend.hints import SharedPrefixes
from ramet.frontend.loop import check_wait
from ramet.frontend.resume import ResumeFile, kept, restored
from ramet.frontend.run import Run
from ramet.frontend.run_keys import RunKeys
from ramet.frontend.runnable import Runnable
from ramet.frontend.state import AsyncState, State
from ramet.ipc.waits import taken

FEWEST_THREADS, THREADS_PER_CORE = 96, 16  # of num_threads="auto": they wait for calls nearly all of the time


class ProgramDone(NamedTuple):
    number: int
    state: State | None  # None: it did not come so far
    error: BaseException | None


class ProgramBatch:
    """One call of run_batch. The caller's thread starts programs and takes what they give; see `results`."""

    def __init__(
        self,
        program: Runnable,
        batch: Sequence[Any],
        num_threads: Any,
        options: Mapping[str, Any],
        resume: Any,
        body: Any,
    ) -> None:
        """`body`: what the program executes, by which a resume file knows it."""
        self._program, self._arguments = program, [_arguments(i, each) for i, each in enumerate(batch)]
        self._at_once = _at_once(num_threads, len(self._arguments))
        own, self._options = program.divided(options)
        if own or self._options.stream:
            name = next(iter(own), "stream")
            raise TypeError(
                f"run_batch has no {name!r}: arguments of the function are in its list, streams are single runs'"
            )
        self._backend = program.backend_for(self._options)
        self._options = self._options._replace(backend=self._backend)  # one for all of its programs
        check_wait(self._backend.loop)
        self._keys: list[str | None] = [None] * len(self._arguments)
        self._file: ResumeFile | None = None
        if resume is not None:
            keys = RunKeys(program, body, self._options)
            self._keys = [keys.of(f"batch_kwargs[{i}]", *each) for i, each in enumerate(self._arguments)]
            self._file = ResumeFile(resume)
        self._prefixes = SharedPrefixes(self._backend) if self._options.hints else None
        self._context = copy_context()  # of the program that this one is called by
        self._todo: SimpleQueue[int | None] = SimpleQueue()  # for the threads; None: end
        self._done: SimpleQueue[ProgramDone] = SimpleQueue()
        self._runs: set[Run] = set()
        self._stopped = False

    def results(self, progress_bar: bool, raises: bool) -> Iterator[State]:
        """In order. At most `at_once` programs run, and as many are done and wait for those before them."""
        num = len(self._arguments)
        waiting: dict[int, ProgramDone] = {}
        to_start, num_running = iter(range(num)), 0
        with self._started(), tqdm(total=num, disable=not progress_bar) as progress:
            for index in range(num):
                while index not in waiting:
                    room = min(self._at_once - num_running, 2 * self._at_once - num_running - len(waiting))
                    for start in islice(to_start, room):
                        self._start(start)
                        num_running += 1
                    done = taken(self._done)
                    waiting[done.number], num_running = done, num_running - 1
                    progress.update()
                    if done.error is not None and (raises or done.state is None):
                        raise BatchFailed(done.number, done.error)
                state = waiting.pop(index).state
                assert state is not None, f"program {index} of the batch gave no state"
                yield state

    @contextmanager
    def _started(self) -> Iterator[None]:
        threads = 0 if self._program.is_async else min(self._at_once, len(self._arguments))
        for number in range(threads):
            threading.Thread(target=self._work, name=f"ramet-batch-{number}", daemon=True).start()
        try:
            yield
        finally:  # also where the caller was interrupted, or left the iterator
            self._stopped = True
            for run in list(self._runs):
                run.cancel()
            for _ in range(threads):
                self._todo.put(None)
            if self._prefixes is not None:
                self._backend.loop.soon(self._prefixes.end)
            if self._file is not None:
                self._file.close()

    def _start(self, index: int) -> None:
        if self._program.is_async:
            self._backend.loop.start(self._run_async(index))
        else:
            self._todo.put(index)

    def _work(self) -> None:
        """One thread: a program after the other. Whatever happens, the caller gets something."""
        while (index := self._todo.get()) is not None:
            try:
                done = self._context.copy().run(self._run, index)
            except BaseException as error:  # noqa: BLE001 - given to the caller
                done = ProgramDone(index, None, error)
            self._done.put(done)

    def _run(self, index: int) -> ProgramDone:
        if (found := self._known(index)) is not None:
            return ProgramDone(index, found, None)
        args, kwargs = self._arguments[index]
        state = State(self._new_run())
        with suppress(BaseException):  # the state has it
            self._program.execute(state, args, kwargs)
        return self._ended(index, state, state.error())

    async def _run_async(self, index: int) -> None:
        """Whatever happens, the caller gets something."""
        try:
            done = await self._run_task(index)
        except BaseException as error:  # noqa: BLE001 - given to the caller
            done = ProgramDone(index, None, error)
        self._done.put(done)

    async def _run_task(self, index: int) -> ProgramDone:
        if (found := self._known(index)) is not None:
            return ProgramDone(index, found, None)
        args, kwargs = self._arguments[index]
        state = AsyncState(self._new_run())
        with suppress(Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt):  # the state has it
            await self._program.execute_async(state, args, kwargs)
        return self._ended(index, state.plain(), await state.error())

    def _new_run(self) -> Run:
        run = self._program.new_run(self._options, self._prefixes)
        self._runs.add(run)
        if self._stopped:
            run.cancel()
        return run

    def _known(self, index: int) -> State | None:
        """Of a program that the resume file has."""
        key = self._keys[index]
        if self._file is None or key is None or (found := self._file.take(key)) is None:
            return None
        return restored(self._program.new_run(self._options), found)

    def _ended(self, index: int, state: State, error: BaseException | None) -> ProgramDone:
        self._runs.discard(state.run)
        if error is None and (error := self._write(index, state)) is not None:
            state.fail(error)
        return ProgramDone(index, state, error)

    def _write(self, index: int, state: State) -> ProgramError | None:
        """To the resume file, a program that is done. What goes wrong is that program's own trouble."""
        key = self._keys[index]
        if self._file is None or key is None:
            return None
        try:
            if (found := kept(state)) is not None:
                self._file.write(key, found)
        except Exception as why:  # noqa: BLE001 - given to the caller
            error = ProgramError(f"resume: its values cannot be written: {type(why).__name__}: {why}")
            error.__cause__ = why
            return error
        return None


def _arguments(index: int, given: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    if isinstance(given, Mapping):
        return (), given
    if isinstance(given, tuple | list):
        return given, {}
    raise TypeError(f"batch_kwargs[{index}] is {given!r}, must be a dict or a tuple of arguments")


def _at_once(num_threads: Any, num: int) -> int:
    if num_threads == "auto":
        return max(1, min(num, max(FEWEST_THREADS, THREADS_PER_CORE * (os.cpu_count() or 1))))
    if isinstance(num_threads, bool) or not isinstance(num_threads, int) or num_threads < 1:
        raise ValueError(f"num_threads is {num_threads!r}, must be an integer >= 1 or 'auto'")
    return num_threads
