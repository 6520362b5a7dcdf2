"""Signals to this process as calls on a thread of their own, which nothing that the main thread waits for holds up.

Python runs its own handlers on the main thread, between two instructions. Where a signal arrives just before the main
thread begins to wait, or on another thread, its handler would run when that wait ends, and nothing might ever end it.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable

AT_ONCE = 64  # signals that are read together


def listen(numbers: Iterable[signal.Signals], deliver: Callable[[int], None]) -> None:
    """Call `deliver` with the number of each of these signals from now on. Only the main thread may call this."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    heard = frozenset(numbers)
    for number in heard:
        signal.signal(number, _only_write)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_read, args=(reading, heard, deliver), name="signals", daemon=True).start()


def _only_write(number: int, frame: object) -> None:
    """Python has written the number to the descriptor by now: that is all that a handler is needed for."""


def _read(descriptor: int, heard: frozenset[int], deliver: Callable[[int], None]) -> None:
    while True:
        for number in os.read(descriptor, AT_ONCE):
            if number in heard:
                deliver(number)
