"""The event loop of the language: one thread per process, started with the first program that needs it."""

import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from ramet.ipc.loop_thread import LoopThread

T = TypeVar("T")


class Loop(Protocol):
    """An event loop on a thread of its own. An in-process engine brings one."""

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]": ...

    def soon(self, function: Callable[[], object]) -> bool: ...

    def is_current(self) -> bool: ...


_loops: dict[int, LoopThread] = {}  # by process: after os.fork() the child makes its own
_making = threading.Lock()


def language_loop() -> LoopThread:
    pid = os.getpid()
    with _making:
        if pid not in _loops:
            _loops[pid] = LoopThread("ramet-language")
        return _loops[pid]
