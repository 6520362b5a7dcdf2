"""Which waiting requests the policy chooses among: by priority and arrival, large ones in round robin.

One client's request may bring thousands of prompts. Once QUANTUM of them have begun, it goes behind all who wait then.
So a request that comes later has QUANTUM of them before it at most, as if QUANTUM clients had sent one prompt each, and
the policy sees it among the first. A request of QUANTUM prompts or fewer keeps the place of its arrival.

Prompts and samples of one client's request have one time of arrival, by which they are known. Knows no request.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ramet.ipc.message import Uid

QUANTUM = 64  # prompts: as many as begin in one step beside rows that draw

Precedence = tuple[int, float, Uid]  # of Request.precedence: priority, arrival, uid, sorted ascending
Key = tuple[int, float]  # what the precedences of one client's request have in common
LAST = 1 << 63  # above every uid
MAX_RUNS = 64  # of neighbours, each of which moves all entries behind it: 10 us of 16,000
Entry = TypeVar("Entry", Precedence, tuple[float, Uid])


@dataclass(slots=True)
class _Quantum:
    since_s: float  # who arrived later goes behind it
    left: int  # prompts that begin before it goes behind others


def take_out(entries: list[Entry], gone: Iterable[Entry]) -> None:
    """WRITES `entries`, which are sorted and have all that is `gone`. Neighbours go together: those of one request."""
    runs = list[tuple[int, int]]()
    start = stop = 0
    for each in sorted(gone):
        if stop == len(entries) or entries[stop] != each:
            runs.append((start, stop))
            start = stop = bisect_left(entries, each, stop)
        stop += 1
    runs.append((start, stop))
    if len(runs) <= MAX_RUNS:
        for start, stop in reversed(runs):
            del entries[start:stop]
        return
    kept, end = list[Entry](), 0
    for start, stop in runs:
        kept += entries[end:start]
        end = stop
    entries[:] = kept + entries[end:]


class RoundRobin:
    def __init__(self) -> None:
        self._precedences: list[Precedence] = []  # sorted
        self._sizes: dict[Key, int] = {}  # how many of a client's request wait
        self._large: dict[Key, _Quantum] = {}  # of which more than QUANTUM waited

    def add(self, precedence: Precedence) -> None:
        insort(self._precedences, precedence)
        self._came(precedence)

    def add_all(self, precedences: Iterable[Precedence]) -> None:
        """As `add`. Of thousands each costs less than by itself."""
        for precedence in (added := list(precedences)):
            self._came(precedence)
        self._precedences = sorted([*self._precedences, *added])

    def remove(self, precedence: Precedence) -> None:
        del self._precedences[bisect_left(self._precedences, precedence)]
        self._went(precedence)

    def remove_all(self, precedences: Sequence[Precedence]) -> None:
        """Of thousands each costs less than by itself."""
        take_out(self._precedences, precedences)
        for precedence in precedences:
            self._went(precedence)

    def begun(self, precedence: Precedence, now_s: float) -> None:
        """One that was here runs."""
        quantum = self._large.get(precedence[:2])
        if quantum is not None:
            quantum.left -= 1
            if not quantum.left:
                quantum.since_s, quantum.left = now_s, QUANTUM

    def first(self, num: int) -> list[Uid]:
        """The `num` that go first. What large requests have beyond their quantum comes behind all others."""
        if not self._large:
            return [uid for _, _, uid in self._precedences[:num]]
        found, beyond = list[Precedence](), list[tuple[int, int]]()
        others = self._others()
        other = next(others, None)
        for key in sorted(self._large, key=lambda key: (key[0], self._large[key].since_s, key[1])):
            quantum, start = self._large[key], bisect_left(self._precedences, key)
            while other is not None and other < (key[0], quantum.since_s, LAST) and len(found) < num:
                found.append(other)
                other = next(others, None)
            stop = start + self._sizes[key]
            end = start + min(quantum.left, stop - start, num - len(found))
            found += self._precedences[start:end]
            beyond.append((end, stop))
        while other is not None and len(found) < num:
            found.append(other)
            other = next(others, None)
        for start, stop in beyond:
            found += self._precedences[start : min(stop, start + num - len(found))]
        return [uid for _, _, uid in found]

    def _others(self) -> Iterator[Precedence]:
        """Yield requests that are not large."""
        start = 0
        for key in sorted(self._large):
            stop = bisect_left(self._precedences, key, start)
            yield from (self._precedences[i] for i in range(start, stop))
            start = stop + self._sizes[key]
        yield from (self._precedences[i] for i in range(start, len(self._precedences)))

    def _came(self, precedence: Precedence) -> None:
        key = precedence[:2]
        size = self._sizes[key] = self._sizes.get(key, 0) + 1
        if size > QUANTUM and key not in self._large:
            self._large[key] = _Quantum(since_s=key[1], left=QUANTUM)

    def _went(self, precedence: Precedence) -> None:
        key = precedence[:2]
        self._sizes[key] -= 1
        if not self._sizes[key]:
            del self._sizes[key]
            self._large.pop(key, None)
