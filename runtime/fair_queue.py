"""A queue from which threads take work, and in which the keys of clients have turns.

Decides which item is next: the oldest one of the key whose turn it is. A key with a name may keep at most its share of
the threads busy, and items that take long can be left to some of the threads. Knows neither items nor threads.
"""

import threading
from collections import Counter, OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")
Lane = deque[tuple[int, T]]  # items with their places in the order of arrival


class FairQueue(Generic[T]):
    """For any number of threads. `most_of_one`: items of one key that may be served at once."""

    def __init__(self, most_of_one: int) -> None:
        self._most_of_one = most_of_one
        # short and long items by key; the key whose turn it is comes first
        self._waiting: OrderedDict[str, tuple[Lane[T], Lane[T]]] = OrderedDict()
        self._busy = Counter[str]()  # items of each key that are being served
        self._num_put = 0
        self._changed = threading.Condition()
        self._closed = False

    def put(self, owner: str, item: T, *, is_long: bool = False) -> None:
        """`owner`: the name of a key, whose items are taken in order; empty: there is no bound."""
        with self._changed:
            if self._closed:
                return
            self._num_put += 1
            self._waiting.setdefault(owner, (deque(), deque()))[is_long].append((self._num_put, item))
            self._changed.notify_all()

    def pop(self, *, only_short: bool = False) -> tuple[str, T] | None:
        """The next item with its owner, for whom `done` is called later. None: there is none that may be served."""
        with self._changed:
            return self._next(only_short)

    def take(self, *, only_short: bool = False) -> tuple[str, T] | None:
        """As `pop`, but waits for an item. None: the queue is closed."""
        with self._changed:
            while not self._closed:
                if (found := self._next(only_short)) is not None:
                    return found
                self._changed.wait()
            return None

    def done(self, owner: str) -> None:
        """An item of this owner has been served: the others come first now."""
        with self._changed:
            self._busy[owner] -= 1
            if not self._busy[owner]:
                del self._busy[owner]
            if owner in self._waiting:
                self._waiting.move_to_end(owner)
            self._changed.notify_all()

    def close(self) -> None:
        """Drop what waits. Nothing is given out any more."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def _next(self, only_short: bool) -> tuple[str, T] | None:
        for owner, lanes in self._waiting.items():
            filled = [lane for lane in (lanes[:1] if only_short else lanes) if lane]
            if not filled or (owner and self._busy[owner] >= self._most_of_one):
                continue
            _, item = min(filled, key=lambda lane: lane[0][0]).popleft()
            if not any(lanes):
                del self._waiting[owner]
            self._busy[owner] += 1
            return owner, item
        return None
