"""When memory that large or many requests freed goes back to the system: TRIM_AFTER_S later, and at most so often.

malloc keeps freed blocks that lie below one that is in use. To search for them takes 16 ms for 200 MiB, so it is not
done for each request. If it waited for a pause instead, it would never happen while large requests follow each other.
"""

import asyncio
from collections.abc import Callable

from ramet.runtime.machine import trim_heap

TRIM_AFTER_S = 1.0


class FreedMemory:
    def __init__(self, trim: Callable[[], None] = trim_heap) -> None:
        self._trim = trim
        self._timer: asyncio.TimerHandle | None = None
        self._freed_more = False  # since the timer was set: perhaps only just before it expires

    def note(self) -> None:
        """Much memory is freed about now. All of it is given back within twice TRIM_AFTER_S."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TRIM_AFTER_S, self._give_back)
        else:
            self._freed_more = True

    def _give_back(self) -> None:
        self._trim()
        self._timer, again = None, self._freed_more
        self._freed_more = False
        if again:
            self.note()
