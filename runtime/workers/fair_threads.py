"""A few threads that serve the keys of clients in turn: calls of one key do not keep those of another waiting,
nor large calls small ones.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from ramet.runtime.access.shares import part
from ramet.runtime.workers.fair_queue import MIN_SIZE, FairQueue


class FairThreads:
    """`num` threads call `serve` with each item. `share`: the part of the threads that one key may have at once."""

    def __init__(self, num: int, name: str, serve: Callable[[Any], None], share: float = 1.0) -> None:
        self._serve, self._pool = serve, ThreadPoolExecutor(num, name)
        self._queue = FairQueue[Any](part(num, share))

    def put(self, owner: str, item: Any, size: int = MIN_SIZE) -> int:
        """`owner` and `size`: as of FairQueue. Returns its place."""
        place = self._queue.put(owner, item, size)
        with suppress(RuntimeError):  # the pool is closed: nobody waits for an answer
            self._pool.submit(self._serve_waiting)
        return place

    def remove(self, owner: str, place: int) -> None:
        """The item that `put` put there need not be served, if it still waits."""
        self._queue.remove(owner, place)

    def run(self, work: Callable[[], None]) -> None:
        """Run `work` on one of the threads."""
        self._pool.submit(work)

    def close(self) -> None:
        """Drop what waits, and wait for what runs."""
        self._queue.close()
        self._pool.shutdown(cancel_futures=True)

    def _serve_waiting(self) -> None:
        """Serve items until none waits whose key may have a thread."""
        while (found := self._queue.pop()) is not None:
            owner, item = found
            try:
                self._serve(item)
            finally:
                self._queue.done(owner)
