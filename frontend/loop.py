"""The event loop of the language: one thread per process, started with the first program that needs it."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeVar

from ramet.frontend.errors import ProgramError
from ramet.ipc.loop_thread import LoopThread

T = TypeVar("T")


def check_wait(loop: LoopThread) -> None:
    """Called before this thread waits for what the loop does. Raises ProgramError."""
    if loop.is_current():
        raise ProgramError("this would wait on the event loop that its calls need; in an async def there is `await`")


def on_thread(name: str, function: Callable[[], T]) -> "Future[T]":
    """Call the function on a thread of its own, with the context variables of this one."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    context = copy_context()

    def call() -> None:
        try:
            future.set_result(context.run(function))
        except BaseException as error:  # noqa: BLE001 - given to whoever waits
            future.set_exception(error)

    threading.Thread(target=call, name=name, daemon=True).start()
    return future


_loops: dict[int, LoopThread] = {}  # by process: after os.fork() the child makes its own
_making = threading.Lock()


def language_loop() -> LoopThread:
    pid = os.getpid()
    with _making:
        if pid not in _loops:
            _loops[pid] = LoopThread("ramet-language")
        return _loops[pid]
