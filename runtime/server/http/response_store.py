"""Responses that clients may get again, or continue. They are in the memory of this process alone."""

import sys
from array import array
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from cachetools import LRUCache

from ramet.runtime.access.owner import Owner

# Of an id that a client gave, beside its text: its place in a dictionary, and the pair of numbers there.
OWN_ID_BYTES = 200


class StoredItems:
    """The items of a response's input as JSON objects, each of which can be read without the others."""

    __slots__ = ("_ends", "_json", "own_ids", "size")

    def __init__(self, items: Iterable[tuple[str, bytes]] = ()) -> None:
        """`items`: of each the id that its client gave, or nothing, and its JSON."""
        each, self.own_ids = [*items], dict[str, tuple[int, int]]()  # id -> its first and last place
        found, own_bytes = [item for _, item in each], 0
        self._ends = array("Q", accumulate(map(len, found), initial=0))
        for place, own_id in [(place, own_id) for place, (own_id, _) in enumerate(each) if own_id]:
            first, _ = self.own_ids.get(own_id, (place, place))
            own_bytes += (first == place) * (OWN_ID_BYTES + sys.getsizeof(own_id))
            self.own_ids[own_id] = first, place
        self._json = b"".join(found)
        self.size = len(self._json) + len(self._ends) * self._ends.itemsize + own_bytes

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, place: int) -> bytes:
        return self._json[self._ends[place] : self._ends[place + 1]]


class Stored(NamedTuple):
    response: bytes  # JSON object, as it was sent
    items: StoredItems
    messages: bytes  # JSON list: the chat up to the response's end, without instructions
    media: bytes = b""  # JSON list of what stands in the places of its media, in order; empty: it has none

    @property
    def size(self) -> int:
        return len(self.response) + self.items.size + len(self.messages) + len(self.media)


class ResponseStore:
    """At most so many bytes are kept. Where they come to more, the owner that has most loses its least recently used
    one. `share`: of all bytes, that one owner may have.
    """

    def __init__(self, max_bytes: int, share: float = 1.0) -> None:
        self.max_bytes, self._max_of_one = max_bytes, int(max_bytes * share)
        self._of: dict[str, LRUCache[str, Stored]] = {}  # by the owner's name

    @property
    def num_bytes(self) -> int:
        return sum(int(kept.currsize) for kept in self._of.values())

    def put(self, owner: Owner, key: str, stored: Stored) -> bool:
        """Whether it is kept: what is larger than all that its owner may have is not."""
        if stored.size > self._max_of_one:
            return False
        own = self._of.get(owner.name)
        if own is None:
            own = self._of[owner.name] = LRUCache(self._max_of_one, getsizeof=lambda each: each.size)
        own[key] = stored
        while self.num_bytes > self.max_bytes:
            max(self._of.values(), key=lambda kept: kept.currsize).popitem()
        return key in own

    def get(self, owner: Owner, key: str) -> Stored | None:
        """Its own; for the admin key anybody's."""
        return next((found for kept in self._visible(owner) if (found := kept.get(key)) is not None), None)

    def remove(self, owner: Owner, key: str) -> None:
        for kept in self._visible(owner):
            kept.pop(key, None)

    def _visible(self, owner: Owner) -> list[LRUCache[str, Stored]]:
        return [kept for name, kept in self._of.items() if owner.may_use(name)]
