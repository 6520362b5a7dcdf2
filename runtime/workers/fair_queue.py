"""A queue from which threads take work, and in which the keys of clients have turns.

Decides which item is next: of the key whose turn it is, an item of the size that has had least. A key with a name may
keep at most its share of the threads busy, and large items can be left to some of the threads. Who else must wait is
asked of whoever made the queue. Knows neither items nor threads.

*Sizes.* A class has the items of a key that are at most twice as large as those of the class below. Classes that wait
share what is served by bytes, not by items, and one that was empty comes next (start-time fair queueing, Goyal, Vin and
Cheng, 1996). So an item that is the first of its class waits for at most one item of each larger class, however many
wait there, and small items cannot starve a large one: before it come of each smaller class at most as many bytes as the
item before it in its own class has, and one item.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
MIN_SIZE = 1 << 12  # the size that smaller items count as: that of the lowest class


class _Waiting(Generic[T]):
    """The items of one key. `now` and `begins` count bytes that are served, as if all classes were served at once."""

    def __init__(self) -> None:
        self._classes: dict[int, OrderedDict[int, tuple[T, int]]] = {}  # items and sizes by place, in order of arrival
        self._begins: dict[int, int] = {}  # when the next item of each class begins to be served
        self._now = 0

    def __bool__(self) -> bool:
        return bool(self._classes)

    def put(self, place: int, item: T, size: int) -> None:
        found = class_of(size)
        if found not in self._classes:
            self._classes[found] = OrderedDict()
            self._begins[found] = max(self._now, self._begins.get(found, 0))
        self._classes[found][place] = item, max(MIN_SIZE, size)

    def remove(self, place: int) -> None:
        for found, items in self._classes.items():
            if items.pop(place, None) is not None:
                if not items:
                    del self._classes[found]
                return

    def pop(self, max_size: int | None) -> T | None:
        """The next item, of those that are not larger."""
        most = None if max_size is None else class_of(max_size)
        allowed = [found for found in self._classes if most is None or found <= most]
        if not allowed:
            return None
        found = min(allowed, key=lambda each: (self._begins[each], each))
        self._now = max(self._now, self._begins[found])
        _, (item, size) = self._classes[found].popitem(last=False)
        self._begins[found] += size
        if not self._classes[found]:
            del self._classes[found]
        return item


def class_of(size: int) -> int:
    """The class of an item's size: the exponent of the next power of two."""
    return (max(MIN_SIZE, size) - 1).bit_length()


class FairQueue(Generic[T]):
    """For any number of threads. `max_of_one`: items of one key that may be served at once. `may_begin`: whether an
    item of this owner may be served now; `wake` says that it has changed its mind.
    """

    def __init__(self, max_of_one: int, may_begin: Callable[[str], bool] = lambda owner: True) -> None:
        self._max_of_one, self._may_begin = max_of_one, may_begin
        self._waiting: OrderedDict[str, _Waiting[T]] = OrderedDict()  # by key; the one whose turn it is comes first
        self._busy = Counter[str]()  # items of each key that are being served
        self._num_put = 0
        self._changed = threading.Condition()
        self._closed = False

    def put(self, owner: str, item: T, size: int = MIN_SIZE) -> int:
        """`owner`: the name of a key, whose items of similar size are taken in order; empty: there is no bound.

        `size`: in bytes, or whatever else the work for an item grows with. Returns its place.
        """
        with self._changed:
            self._num_put += 1
            if not self._closed:
                self._waiting.setdefault(owner, _Waiting()).put(self._num_put, item, size)
                self._changed.notify_all()
            return self._num_put

    def remove(self, owner: str, place: int) -> None:
        """The item that `put` put there need not be served, if it still waits."""
        with self._changed:
            if (waiting := self._waiting.get(owner)) is not None:
                waiting.remove(place)
                if not waiting:
                    del self._waiting[owner]

    def wake(self) -> None:
        """Items may begin that could not."""
        with self._changed:
            if self._waiting:
                self._changed.notify_all()

    def pop(self, max_size: int | None = None) -> tuple[str, T] | None:
        """The next item with its owner, for whom `done` is called later. None: there is none that may be served.

        `max_size`: larger items are left to others; a power of two.
        """
        with self._changed:
            return self._next(max_size)

    def take(self, max_size: int | None = None) -> tuple[str, T] | None:
        """As `pop`, but waits for an item. None: the queue is closed."""
        with self._changed:
            while not self._closed:
                if (found := self._next(max_size)) is not None:
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

    def _next(self, max_size: int | None) -> tuple[str, T] | None:
        for owner, waiting in self._waiting.items():
            if (owner and self._busy[owner] >= self._max_of_one) or not self._may_begin(owner):
                continue
            if (item := waiting.pop(max_size)) is None:
                continue
            if not waiting:
                del self._waiting[owner]
            self._busy[owner] += 1
            return owner, item
        return None
