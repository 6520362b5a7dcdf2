"""Who asked for a change of the engine, and when the change ends because nobody waits for it any more.

While it waits for its turn, or for running sequences to end, it has not begun: it ends with its caller. Once the engine
is asked it goes on, so that what is known here is what the engine does; only its next wait ends it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
log = logging.getLogger("ramet")


class Caller:
    def __init__(self) -> None:
        self._is_gone, self._waits = False, False

    def check_waits(self) -> None:
        """Ends the change if its caller is gone."""
        if self._is_gone:
            raise asyncio.CancelledError

    @contextmanager
    def waits(self) -> Iterator[None]:
        """The change has not begun in this block, and begins in none if its caller is gone."""
        self.check_waits()
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    @asynccontextmanager
    async def turn(self, lock: asyncio.Lock) -> AsyncIterator[None]:
        """One change after the other."""
        with self.waits():
            await lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def leaves(self, change: asyncio.Future[Any]) -> None:
        """Of a change that runs, or has just ended."""
        self._is_gone = True
        change.add_done_callback(_tell_failure)
        if self._waits:
            change.cancel()


class BackgroundTasks:
    """Tasks that go on, whatever becomes of their callers."""

    def __init__(self) -> None:
        self._tasks = set[asyncio.Future[Any]]()  # without a reference a task may be collected while it runs

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def for_caller(
    change: Callable[[Caller], Coroutine[Any, Any, T]], begin: Callable[[Coroutine[Any, Any, T]], asyncio.Future[T]]
) -> T:
    """What the change returns. `begin` runs it as a task."""
    caller = Caller()
    task = begin(change(caller))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        caller.leaves(task)
        raise


def _tell_failure(change: asyncio.Future[Any]) -> None:
    if not change.cancelled() and (error := change.exception()) is not None:
        log.warning("a change of the engine failed after its client had gone away: %s", error)
