"""Responses that clients may get again, or continue. They are in the memory of this process alone."""

from typing import NamedTuple

from cachetools import LRUCache

from ramet.runtime.owner import Owner


class Stored(NamedTuple):
    response: bytes  # JSON object, as it was sent
    items: bytes  # JSON list of the input's items
    messages: bytes  # JSON list: the chat up to the response's end, without instructions

    @property
    def size(self) -> int:
        return sum(map(len, self))


class ResponseStore:
    """At most so many bytes are kept. Where they come to more, the owner that has most loses its least recently used
    one. `share`: of all bytes, that one owner may have.
    """

    def __init__(self, most_bytes: int, share: float = 1.0) -> None:
        self.most_bytes, self._most_of_one = most_bytes, int(most_bytes * share)
        self._of: dict[str, LRUCache[str, Stored]] = {}  # by the owner's name

    @property
    def num_bytes(self) -> int:
        return sum(int(kept.currsize) for kept in self._of.values())

    def put(self, owner: Owner, key: str, stored: Stored) -> bool:
        """Whether it is kept: what is larger than all that its owner may have is not."""
        if stored.size > self._most_of_one:
            return False
        own = self._of.get(owner.name)
        if own is None:
            own = self._of[owner.name] = LRUCache(self._most_of_one, getsizeof=lambda each: each.size)
        own[key] = stored
        while self.num_bytes > self.most_bytes:
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
