"""A queue from which threads take work, and in which the keys of clients have turns.

Decides which item is next: the oldest one of the key whose turn it is. A key with a name may keep at most its share of
the threads busy, and items that take long can be left to some of the threads. Who else must wait is asked of whoever
made the queue. Knows neither items nor threads.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
Lane = OrderedDict[int, T]  # items by their places in the order of arrival


class FairQueue(Generic[T]):
    """For any number of threads. `most_of_one`: items of one key that may be served at once. `may_begin`: whether an
    item of this owner may be served now; `wake` says that it has changed its mind.
    """

    def __init__(self, most_of_one: int, may_begin: Callable[[str], bool] = lambda owner: True) -> None:
        self._most_of_one, self._may_begin = most_of_one, may_begin
        # short and long items by key; the key whose turn it is comes first
        self._waiting: OrderedDict[str, tuple[Lane[T], Lane[T]]] = OrderedDict()
        self._busy = Counter[str]()  # items of each key that are being served
        self._num_put = 0
        self._changed = threading.Condition()
        self._closed = False

    def put(self, owner: str, item: T, *, is_long: bool = False) -> int:
        """`owner`: the name of a key, whose items are taken in order; empty: there is no bound. Returns its place."""
        with self._changed:
            self._num_put += 1
            if not self._closed:
                self._waiting.setdefault(owner, (OrderedDict(), OrderedDict()))[is_long][self._num_put] = item
                self._changed.notify_all()
            return self._num_put

    def remove(self, owner: str, place: int) -> None:
        """The item that `put` put there need not be served, if it still waits."""
        with self._changed:
            lanes = self._waiting.get(owner, ())
            for lane in lanes:
                lane.pop(place, None)
            if lanes and not any(lanes):
                del self._waiting[owner]

    def wake(self) -> None:
        """Items may begin that could not."""
        with self._changed:
            if self._waiting:
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
            if not filled or (owner and self._busy[owner] >= self._most_of_one) or not self._may_begin(owner):
                continue
            _, item = min(filled, key=lambda lane: next(iter(lane))).popitem(last=False)
            if not any(lanes):
                del self._waiting[owner]
            self._busy[owner] += 1
            return owner, item
        return None
