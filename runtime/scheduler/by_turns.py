"""The order in which waiting requests come before the policy: by priority and arrival, and large ones by turns.

One client's request may bring thousands of prompts. Once TURN of them have begun, it goes behind all who wait by then.
So a request that comes later has TURN of them before it at most, as if TURN clients had sent one prompt each, and the
policy sees it among the first. A request of TURN prompts or fewer keeps the place of its arrival.

Prompts and samples of one client's request have one time of arrival, by which they are known. Knows ranks and no
request.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ramet.ipc.message import Uid

TURN = 64  # prompts: as many as begin in one step beside rows that draw

Rank = tuple[int, float, Uid]  # of Request.rank: priority, arrival, uid, sorted ascending
Key = tuple[int, float]  # what the ranks of one client's request have in common
LAST = 1 << 63  # above every uid
MAX_RUNS = 64  # of neighbours, each of which moves all entries behind it: 10 us of 16,000
Entry = TypeVar("Entry", Rank, tuple[float, Uid])


@dataclass(slots=True)
class _Turn:
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


class ByTurns:
    def __init__(self) -> None:
        self._ranks: list[Rank] = []  # sorted
        self._sizes: dict[Key, int] = {}  # how many of a client's request wait
        self._large: dict[Key, _Turn] = {}  # of which more than TURN waited

    def add(self, rank: Rank) -> None:
        insort(self._ranks, rank)
        self._came(rank)

    def add_all(self, ranks: Iterable[Rank]) -> None:
        """As `add`. Of thousands each costs less than by itself."""
        for rank in (added := list(ranks)):
            self._came(rank)
        self._ranks = sorted([*self._ranks, *added])

    def remove(self, rank: Rank) -> None:
        del self._ranks[bisect_left(self._ranks, rank)]
        self._went(rank)

    def remove_all(self, ranks: Sequence[Rank]) -> None:
        """Of thousands each costs less than by itself."""
        take_out(self._ranks, ranks)
        for rank in ranks:
            self._went(rank)

    def begun(self, rank: Rank, now_s: float) -> None:
        """One that was here runs."""
        turn = self._large.get(rank[:2])
        if turn is not None:
            turn.left -= 1
            if not turn.left:
                turn.since_s, turn.left = now_s, TURN

    def first(self, num: int) -> list[Uid]:
        """The `num` that go first. What large requests have beyond their turn comes behind the turns of all."""
        if not self._large:
            return [uid for _, _, uid in self._ranks[:num]]
        found, beyond = list[Rank](), list[tuple[int, int]]()
        others = self._others()
        other = next(others, None)
        for key in sorted(self._large, key=lambda key: (key[0], self._large[key].since_s, key[1])):
            turn, start = self._large[key], bisect_left(self._ranks, key)
            while other is not None and other < (key[0], turn.since_s, LAST) and len(found) < num:
                found.append(other)
                other = next(others, None)
            stop = start + self._sizes[key]
            end = start + min(turn.left, stop - start, num - len(found))
            found += self._ranks[start:end]
            beyond.append((end, stop))
        while other is not None and len(found) < num:
            found.append(other)
            other = next(others, None)
        for start, stop in beyond:
            found += self._ranks[start : min(stop, start + num - len(found))]
        return [uid for _, _, uid in found]

    def _others(self) -> Iterator[Rank]:
        """Ranks of requests that are not large."""
        start = 0
        for key in sorted(self._large):
            stop = bisect_left(self._ranks, key, start)
            yield from (self._ranks[i] for i in range(start, stop))
            start = stop + self._sizes[key]
        yield from (self._ranks[i] for i in range(start, len(self._ranks)))

    def _came(self, rank: Rank) -> None:
        key = rank[:2]
        size = self._sizes[key] = self._sizes.get(key, 0) + 1
        if size > TURN and key not in self._large:
            self._large[key] = _Turn(since_s=key[1], left=TURN)

    def _went(self, rank: Rank) -> None:
        key = rank[:2]
        self._sizes[key] -= 1
        if not self._sizes[key]:
            del self._sizes[key]
            self._large.pop(key, None)
