"""Sequences that their programs are about to go on with: they stay in the pool until then, for a moment at most.

A program's next call comes milliseconds after its last output. By then its prefix could have been evicted for the next
prompt of the queue, although it would have been the first choice of any policy that looks for cached prefixes. A client
that knows better than the queue says so (`follow_up`): what a request leaves behind is locked until the next request of
the same state arrives, its program ends, KEPT_S are over, or a running request needs the memory. Section 6.4.1 of the
SGLang paper: what the interpreter knows and the runtime does not. Knows leases, not tokens.
"""

from collections.abc import Callable
from itertools import chain
from math import inf
from typing import NamedTuple

from ramet.ipc.spec import FollowUp
from ramet.runtime.cache.prefix import Lease, PrefixCache

KEPT_S = 0.25
SEEN = 64  # of the last ones so many are the evidence whether the next will come
MAX_KEPT = 1024  # sequences


class _Kept(NamedTuple):
    lease: Lease
    until_s: float
    growth: int  # tokens that the follow-up is expected to add


class FollowUps:
    """`clock` is monotonic seconds."""

    def __init__(self, cache: PrefixCache, clock: Callable[[], float]) -> None:
        self._cache, self._clock = cache, clock
        self.share = 1.0  # of follow-ups that were announced and came, in [0, 1]
        # by program and state. Others read it, so that nothing here is called while nothing is kept
        self.kept: dict[str, dict[int, list[_Kept]]] = {}

    @property
    def leases(self) -> list[Lease]:
        return [kept.lease for kept in self._all()]

    @property
    def wait_s(self) -> float:
        """Until the first of them ends; inf: there is none."""
        return max(0.0, min((kept.until_s for kept in self._all()), default=inf) - self._clock())

    @property
    def growth(self) -> int:
        """Tokens that all follow-ups are expected to add."""
        return int(sum(kept.growth for kept in self._all()) * self.share)

    def keep(self, asked: FollowUp, lease: Lease, growth: int) -> None:
        """A request has ended whose sequence is leased, and to which it has added `growth` tokens."""
        if self._cache.can_hold and len(self.leases) < MAX_KEPT:
            kept = _Kept(self._cache.again(lease), self._clock() + KEPT_S, growth)
            self.kept.setdefault(asked.program, {}).setdefault(asked.state, []).append(kept)

    def came(self, asked: FollowUp) -> None:
        """The next request of this state is here, and waits for what it needs by itself."""
        self._release(asked, came=True)

    def _release(self, asked: FollowUp, came: bool) -> None:
        states = self.kept.get(asked.program, {})
        for kept in states.pop(asked.state, ()):
            self._cache.release(kept.lease)
            self.share += (came - self.share) / SEEN
        if not states:
            self.kept.pop(asked.program, None)

    def end(self, program: str) -> None:
        for state in list(self.kept.get(program, ())):
            self._release(FollowUp(program, state), came=False)

    def end_all(self) -> None:
        for program in list(self.kept):
            self.end(program)

    def expire(self) -> None:
        """Those whose time is over."""
        self._end_until(self._clock())

    def give_way(self) -> bool:
        """End the earliest of them; False: there is none."""
        first = min((kept.until_s for kept in self._all()), default=None)
        if first is not None:
            self._end_until(first)
        return first is not None

    def _end_until(self, time_s: float) -> None:
        for program, states in list(self.kept.items()):
            for state, each in list(states.items()):
                if any(kept.until_s <= time_s for kept in each):
                    self._release(FollowUp(program, state), came=False)

    def _all(self) -> chain[_Kept]:
        return chain.from_iterable(chain.from_iterable(states.values() for states in self.kept.values()))
