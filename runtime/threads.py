"""Threads of one process and the event loops between them: what an in-process engine needs, whatever it computes.

Decides how a thread starts, hands over and ends. Knows no message. All threads are daemons, for Python waits for
others before it calls what is registered with atexit: their owner must have them end there.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar, TypeVarTuple, Unpack

from ramet.ipc.channel import Stopped
from ramet.ipc.message import Message
from ramet.runtime.errors import EngineClosed

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
GRACE_S = 5.0  # how long open calls may take to notice that the engine was closed
MOST_WAITING = 32  # messages that wake no event loop


def call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
    """From any thread; nothing if the loop has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *args)


class LoopThread:
    """An event loop on a thread of its own, to which any thread may give coroutines."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.RLock()  # a garbage collection while it is held may call `soon` from within
        self._closed, self._pid = False, os.getpid()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Cancelling the future cancels the coroutine. Raises EngineClosed."""
        if os.getpid() != self._pid:  # a fork has no threads but the one that forked
            coroutine.close()
            raise EngineClosed(f"The engine is one of process {self._pid}; after os.fork() the child makes its own.")
        with self._lock:
            if self._closed:
                coroutine.close()
                raise EngineClosed
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for it. An interrupt (Ctrl-C) of the waiting thread cancels it."""
        future = self.start(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def soon(self, function: Callable[[], object]) -> None:
        """Call it on the loop, without waiting; nothing if the loop has ended."""
        call_soon(self._loop, function)

    def close(self, last: Coroutine[Any, Any, None], wait: bool = True) -> None:
        """Run `last`, let what still runs come to its end, and end the thread. `wait`: until it has ended."""
        with self._lock:
            self._closed = True
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._end(last)))
        if wait:
            self._thread.join()

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        try:
            self._loop.run_forever()
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


class EngineThread(threading.Thread):
    """Runs until its inbox is stopped. `failed(name, error)` is called on the loop if it raises."""

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        target: Callable[[], None],
        failed: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__(name=f"ramet-{name}", daemon=True)
        self._part, self._loop, self._work, self._failed = name, loop, target, failed
        self._done: asyncio.Future[None] = loop.create_future()
        self.start()

    async def ended(self) -> None:
        """Returns when the thread has ended."""
        await asyncio.shield(self._done)
        self.join()

    def run(self) -> None:
        try:
            self._work()
        except Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 - handed to the loop, which ends every call with it
            call_soon(self._loop, self._failed, self._part, error)
        finally:
            del self._work  # and with it the model
            call_soon(self._loop, self._end)

    def _end(self) -> None:
        if not self._done.done():
            self._done.set_result(None)


class Arrivals:
    """Messages of other threads for an event loop. One wake-up of the loop delivers all that is waiting by then.

    A message that `can_wait` is delivered with the next one that cannot, or as the last of MOST_WAITING: a wake-up
    takes a core from the threads that compute.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deliver: Callable[[Any], None],
        can_wait: Callable[[Message], bool] = lambda _: False,
    ) -> None:
        self._loop, self._deliver, self._can_wait = loop, deliver, can_wait
        self._queue: deque[Message] = deque()
        self._waking = False

    def send(self, message: Message) -> None:
        self._queue.append(message)
        if self._can_wait(message) and len(self._queue) < MOST_WAITING:
            return
        if not self._waking:  # set back before the queue is read: no message is left behind
            self._waking = True
            call_soon(self._loop, self._wake)

    def _wake(self) -> None:
        self._waking = False
        while self._queue:
            self._deliver(self._queue.popleft())
