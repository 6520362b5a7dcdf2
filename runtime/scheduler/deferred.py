"""What leaves the running set while a step in flight may still use it: slots, leases and rows."""

from collections.abc import Callable
from dataclasses import dataclass

from ramet.runtime.arrays import Ints
from ramet.runtime.cache.prefix import Lease, PrefixCache


@dataclass(frozen=True, slots=True)
class Left:
    """What was left, and step `until` may still read or write; no later step does."""

    until: int
    slots: Ints
    lease: Lease | None = None
    row: int | None = None


class LeftBehind:
    """What running requests have left: free when the result of the last step that used it was applied, not before.

    Steps are numbered.
    """

    def __init__(self, cache: PrefixCache, free_row: Callable[[int], None]) -> None:
        self._cache, self._free_row = cache, free_row
        self.all: list[Left] = []  # that are not free yet
        self.planned = self._confirmed = 0  # numbers of the last step that was planned, and whose result was applied

    @property
    def in_flight(self) -> bool:
        """A step was planned whose result was not applied."""
        return self.planned > self._confirmed

    @property
    def rows(self) -> list[int]:
        return [left.row for left in self.all if left.row is not None]

    @property
    def slots(self) -> list[Ints]:
        return [left.slots for left in self.all]

    @property
    def leases(self) -> list[Lease]:
        return [left.lease for left in self.all if left.lease is not None]

    def add(self, left: Left) -> None:
        if left.until > self._confirmed:
            self.all.append(left)
        else:
            self._free(left)

    def confirm(self, number: int) -> None:
        """The result of step `number` was applied: what only it and earlier steps used is free."""
        self._confirmed = number
        done = [left for left in self.all if left.until <= number]
        if done:
            self.all = [left for left in self.all if left.until > number]
            for left in done:
                self._free(left)

    def _free(self, left: Left) -> None:
        self._cache.free(left.slots)
        if left.lease is not None:
            self._cache.release(left.lease)
        if left.row is not None:
            self._free_row(left.row)
