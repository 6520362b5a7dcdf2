"""An event loop on a thread of its own: what an in-process engine and the language run on.

Decides how other threads hand it work and how it ends. The thread is a daemon, for Python waits for others before it
calls what is registered with atexit: its owner must close it there.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar, TypeVarTuple, Unpack

from ramet.ipc.errors import RametError
from ramet.ipc.owned import NotCopied
from ramet.ipc.waits import waited

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
GRACE_S = 5.0  # how long open calls may take to notice that the loop ends


class LoopClosed(RametError):
    """The loop takes no more coroutines. `pid`: of the process it belongs to, if another one, a fork, gave it one."""

    def __init__(self, pid: int | None = None) -> None:
        super().__init__("The event loop was closed." if pid is None else f"The event loop is one of process {pid}.")


def call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
    """From any thread; nothing if the loop has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *args)


class LoopThread(NotCopied):
    """An event loop on a thread of its own, to which any thread may give coroutines."""

    only_one = "it is a running thread; share the object"

    def __init__(self, name: str, closed: Callable[[int | None], Exception] = LoopClosed) -> None:
        """`closed` makes the error of whoever gives it a coroutine too late; see LoopClosed for its argument."""
        self._loop = asyncio.new_event_loop()
        self._lock = threading.RLock()  # a garbage collection while it is held may call `soon` from within
        self._closed, self._pid, self._error = False, os.getpid(), closed
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Cancelling the future cancels the coroutine. Raises what `closed` makes."""
        if os.getpid() != self._pid:  # a fork has no threads but the one that forked
            coroutine.close()
            raise self._error(self._pid)
        with self._lock:
            if self._closed:
                coroutine.close()
                raise self._error(None)
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for it. An interrupt (Ctrl-C) of the waiting thread cancels it."""
        future = self.start(coroutine)
        try:
            return waited(future)
        except BaseException:
            future.cancel()
            raise

    def soon(self, function: Callable[[], object]) -> bool:
        """Call it on the loop, without waiting. False: nothing is called; it was closed, or is of another process."""
        if os.getpid() != self._pid:
            return False
        with self._lock:
            if not self._closed:
                call_soon(self._loop, function)
            return not self._closed

    def close(self, last: Coroutine[Any, Any, None], wait: bool = True) -> None:
        """Run `last`, let what still runs come to its end, and end the thread. `wait`: until it has ended."""
        with self._lock:
            self._closed = True
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._end(last)))
        if wait:
            self._thread.join()

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def closed_error(self) -> Exception:
        """The error for a caller that gives it work too late."""
        return self._error(None if os.getpid() == self._pid else self._pid)

    def _run(self) -> None:
        """What ends a process, raised by a task, is that task's result: asyncio lets it through, and others go on."""
        is_running = True
        try:
            while is_running:
                with suppress(SystemExit, KeyboardInterrupt):
                    self._loop.run_forever()
                    is_running = False
        finally:
            self._loop.close()

    async def _end(self, last: Coroutine[Any, Any, None]) -> None:
        try:
            await last
        finally:
            await self._settle()
            self._loop.stop()

    async def _settle(self) -> None:
        """Every task ends, and callers that wait for one get its result."""
        await asyncio.sleep(0)  # tasks that were given just before begin
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=GRACE_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=GRACE_S)
        await asyncio.sleep(0)  # results are handed over by callbacks that are scheduled by now
