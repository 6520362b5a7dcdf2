"""Waits that an interrupt (Ctrl-C) always ends, for threads that wait for the work of another thread's event loop.

Python runs the handler of a signal on the main thread between two instructions, or when the signal breaks a wait. One
that comes right before a wait begins does neither, and is seen when that wait ends. So the main thread waits in slices.
"""

import threading
import time
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
SLICE_S = 0.5


def slice_s() -> float | None:
    """How long a wait of this thread may go on without a look at signals; None: for ever."""
    return SLICE_S if threading.current_thread() is threading.main_thread() else None


def settle(future: "Future[Any]", timeout_s: float | None = None) -> None:
    """Until it is done, whichever way. Raises TimeoutError."""
    end_s = None if timeout_s is None else time.monotonic() + timeout_s
    while not future.done():
        wait_s = slice_s()
        if end_s is not None:
            left_s = end_s - time.monotonic()
            wait_s = left_s if wait_s is None else min(wait_s, left_s)
        with suppress(TimeoutError, CancelledError):
            future.exception(wait_s)
        if end_s is not None and time.monotonic() >= end_s and not future.done():
            raise TimeoutError


def waited(future: "Future[T]") -> T:
    """Its result. Raises what it ended with."""
    settle(future)
    return future.result()


def taken(queue: "SimpleQueue[T]") -> T:
    """The next one."""
    while True:
        with suppress(Empty):
            return queue.get(timeout=slice_s())
