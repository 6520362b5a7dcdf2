"""What leaves the running set while a step in flight may still use it: slots, leases and rows."""

from collections.abc import Callable

from ramet.runtime.arrays import Ints
from ramet.runtime.cache.prefix import Lease, PrefixCache


class DeferredFrees:
    """What running requests have left: free when the result of the last step that used it was applied, not before.

    Steps are numbered. `free_row` is set when the scheduler is composed.
    """

    free_row: Callable[[int], None]

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self.all: list[tuple[int, Ints, Lease | None, int | None]] = []  # (last step, slots, lease, row): not free yet
        self.planned = self._confirmed = 0  # numbers of the last step that was planned, and whose result was applied

    @property
    def in_flight(self) -> bool:
        """A step was planned whose result was not applied."""
        return self.planned > self._confirmed

    @property
    def rows(self) -> list[int]:
        return [row for *_, row in self.all if row is not None]

    @property
    def num_tokens(self) -> int:
        """Slots that are not free yet."""
        num = 0
        for _, slots, *_ in self.all:
            num += len(slots)
        return num

    @property
    def slots(self) -> list[Ints]:
        return [slots for _, slots, *_ in self.all]

    @property
    def leases(self) -> list[Lease]:
        return [lease for _, _, lease, _ in self.all if lease is not None]

    def add(self, until: int, slots: Ints, lease: Lease | None = None, row: int | None = None) -> None:
        """Step `until` may still read or write what was left; no later step does."""
        if until > self._confirmed:
            self.all.append((until, slots, lease, row))
            return
        self._cache.free(slots)
        if lease is not None:
            self._cache.release(lease)
        if row is not None:
            self.free_row(row)

    def confirm(self, number: int) -> None:
        """The result of step `number` was applied: what only it and earlier steps used is free."""
        self._confirmed = number
        left, self.all = self.all, []
        for each in left:
            self.add(*each)
