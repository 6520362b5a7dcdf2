"""Responses that clients may get again, or continue. They are in the memory of this process alone."""

from typing import NamedTuple

from cachetools import LRUCache


class Stored(NamedTuple):
    response: bytes  # JSON object, as it was sent
    items: bytes  # JSON list of the input's items
    messages: bytes  # JSON list: the chat up to the response's end, without instructions

    @property
    def size(self) -> int:
        return sum(map(len, self))


class ResponseStore(LRUCache[str, Stored]):
    """At most so many bytes are kept: the least recently used are dropped first."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(most_bytes, getsizeof=lambda stored: stored.size)

    def put(self, key: str, stored: Stored) -> bool:
        """Whether it is kept: what is larger than the whole store is not."""
        if stored.size <= self.maxsize:
            self[key] = stored
        return key in self
