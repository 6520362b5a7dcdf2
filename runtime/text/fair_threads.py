"""A few threads that serve the keys of clients in turn: calls of one key do not keep those of another waiting.

Decides which waiting item is next, and how many threads one key may have. Knows no message.
"""

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from ramet.runtime.shares import part


class FairThreads:
    """`num` threads call `serve` with each item. `share`: the part of the threads that one key may have at once."""

    def __init__(self, num: int, name: str, serve: Callable[[Any], None], share: float = 1.0) -> None:
        self._serve, self._num, self._most_of_one = serve, num, part(num, share)
        self._pool = ThreadPoolExecutor(num, name)
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, deque[Any]] = OrderedDict()  # by key, the one whose turn is next first
        self._busy = Counter[str]()  # threads of each key

    def put(self, owner: str, item: Any) -> None:
        """`owner`: the name of a key, whose items are served in order; empty: the key has no bound."""
        with self._lock:
            self._waiting.setdefault(owner, deque()).append(item)
        with suppress(RuntimeError):  # the pool is closed: nobody waits for an answer
            self._pool.submit(self._serve_waiting)

    def run(self, work: Callable[[], None]) -> None:
        """Run `work` on one of the threads."""
        self._pool.submit(work)

    def close(self) -> None:
        """Drop what waits, and wait for what runs."""
        with self._lock:
            self._waiting.clear()
        self._pool.shutdown(cancel_futures=True)

    def _serve_waiting(self) -> None:
        """Serve items until none waits whose key may have a thread."""
        while (found := self._next()) is not None:
            owner, item = found
            try:
                self._serve(item)
            finally:
                self._end(owner)

    def _next(self) -> tuple[str, Any] | None:
        with self._lock:
            for owner, items in self._waiting.items():
                if owner and self._busy[owner] >= self._most_of_one:
                    continue
                item = items.popleft()
                if not items:
                    del self._waiting[owner]
                self._busy[owner] += 1
                return owner, item
            return None

    def _end(self, owner: str) -> None:
        """A thread of this key is free: the other keys come first."""
        with self._lock:
            self._busy[owner] -= 1
            if not self._busy[owner]:
                del self._busy[owner]
            if owner in self._waiting:
                self._waiting.move_to_end(owner)
