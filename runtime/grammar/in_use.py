"""Compiled constraints that requests have: how many bytes they take, in all and by key, and whether one more has room.

A constraint counts once, for the key that had it compiled, from when it is loaded until the last request that has it
has ended. Its size is what its library's backend estimates. Decides when the next one may be compiled: while those in
use take less than the bound. So whatever the size of a constraint, it has its turn; the bound may be exceeded by those
that are compiled at the same time.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Generic, TypeVar

from ramet.ipc.spec import Constraint
from ramet.runtime.access.shares import part

T = TypeVar("T")


@dataclass(slots=True)
class _EntryInUse(Generic[T]):
    value: T
    num_bytes: int
    owner: str
    num_requests: int


class InUse(Generic[T]):
    """`share`: the part of `max_bytes` that one key with a name may take. One lock guards everything that writes."""

    def __init__(self, max_bytes: int, share: float) -> None:
        self._max_bytes, self._max_of_one = max_bytes, part(max_bytes, share)
        self._entries: dict[Constraint, _EntryInUse[T]] = {}
        self._bytes_of = Counter[str]()  # by owner
        self.num_bytes = 0

    def __contains__(self, key: Constraint) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def has_room(self, owner: str) -> bool:
        """Whether one more may be compiled for this owner. For any thread, without the lock."""
        return self.num_bytes < self._max_bytes and not (owner and self._bytes_of[owner] >= self._max_of_one)

    def find(self, key: Constraint) -> T | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def add(self, key: Constraint, value: T, num_bytes: int, owner: str, num_requests: int = 1) -> None:
        """So many more requests have it."""
        if (entry := self._entries.get(key)) is not None:
            entry.num_requests += num_requests
            return
        self._entries[key] = _EntryInUse(value, num_bytes, owner, num_requests)
        self.num_bytes += num_bytes
        self._bytes_of[owner] += num_bytes

    def leave(self, key: Constraint) -> bool:
        """A request that had it has ended. True: it was the last one."""
        entry = self._entries[key]
        entry.num_requests -= 1
        if entry.num_requests:
            return False
        del self._entries[key]
        self.num_bytes -= entry.num_bytes
        self._bytes_of[entry.owner] -= entry.num_bytes
        if not self._bytes_of[entry.owner]:
            del self._bytes_of[entry.owner]
        return True
