"""Threads of one process beside their event loop: what an in-process engine needs, whatever it computes.

Decides how a thread starts, hands over and ends. Knows no message. All threads are daemons, as that of
ipc/loop_thread.py: their owner must have them end.
"""

import asyncio
import atexit
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from ramet.ipc.channel import InboxStopped
from ramet.ipc.loop_thread import call_soon
from ramet.ipc.message import Message

_quiet: set[type[BaseException]] = set()  # errors that are expected when Python ends
MAX_WAITING = 32  # messages that wake no event loop


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
        except InboxStopped:
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

    A message that `can_wait` is delivered with the next one that cannot, or as the last of MAX_WAITING: a wake-up
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
        if self._can_wait(message) and len(self._queue) < MAX_WAITING:
            return
        if not self._waking:  # set back before the queue is read: no message is left behind
            self._waking = True
            call_soon(self._loop, self._wake)

    def _wake(self) -> None:
        self._waking = False
        while self._queue:
            self._deliver(self._queue.popleft())


def quiet_at_exit(expected: type[BaseException]) -> None:
    """Daemon threads that end with this error because Python ends do so without a traceback, which nobody can act on.

    What Python calls at its end, it calls in reverse: this is to be called after what raises the error is registered.
    """
    if not _quiet:
        atexit.register(_expect)
    _quiet.add(expected)


def _expect() -> None:
    shown = threading.excepthook

    def show(args: threading.ExceptHookArgs) -> None:
        if not (args.thread is not None and args.thread.daemon and _is_expected(args.exc_value)):
            shown(args)

    threading.excepthook = show


def _is_expected(error: BaseException | None) -> bool:
    """Whether the error, or one that caused it, is of an expected type."""
    while error is not None:
        if isinstance(error, tuple(_quiet)):
            return True
        error = error.__cause__ or error.__context__
    return False
