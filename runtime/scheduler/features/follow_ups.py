"""Sequences that their programs are about to go on with: they stay in the pool until then, for a moment at most.

A program's next call comes milliseconds after its last output. By then its prefix could have been evicted for the next
prompt of the queue, although it would have been the first choice of any policy that looks for cached prefixes. A client
that knows better than the queue says so (`follow_up`): what a request leaves behind is locked until the next request of
the same state arrives, its program ends, KEPT_S are over, or a running request needs the memory. Section 6.4.1 of the
SGLang paper: what the interpreter knows and the runtime does not. Knows leases, not tokens.
"""

from collections import OrderedDict
from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

from ramet.ipc.spec import FollowUp, owned
from ramet.runtime.cache.prefix import Lease, PrefixCache
from ramet.runtime.scheduler.feature import TurnFeature

KEPT_S = 0.25
START_CALLS = 3.0  # that a state is expected to make, before any is known
MAX_EXPECTED = 8  # further calls of a state that memory is kept for: until later ones come others have ended
SEEN = 16  # the mean of so many states, weighed towards the last ones, is what others of the kind are expected to make
MAX_KINDS = 1024  # of programs, whose means are known
MAX_KEPT = 1024  # sequences


def kind_of(asked: FollowUp) -> str:
    return owned(asked.owner, asked.kind)


class _Kept(NamedTuple):
    lease: Lease
    until_s: float
    kind: str  # of its program
    added: int  # tokens, by the last call
    num_calls: int  # of the state so far


class FollowUps(TurnFeature):
    """`clock` is monotonic seconds."""

    gives_way = True

    def __init__(self, cache: PrefixCache, clock: Callable[[], float]) -> None:
        self._cache, self._clock = cache, clock
        self._mean_calls: OrderedDict[str, float] = OrderedDict()  # of states, by kind; that of the last end is last
        # by program and state. Others read it, so that nothing here is called while nothing is kept
        self.kept: dict[str, dict[int, list[_Kept]]] = {}
        self.work = self.kept

    @property
    def leases(self) -> list[Lease]:
        return [kept.lease for kept in self._all()]

    @property
    def kept_until(self) -> list[tuple[Lease, float]]:
        """Each with its end, by the clock."""
        return [(kept.lease, kept.until_s) for kept in self._all()]

    def wait_s(self, *, is_awaited: bool) -> float | None:
        """Until the first of them ends; if nobody waits for their memory, until the last: they end together then."""
        ends = [kept.until_s for kept in self._all()]
        return max(0.0, (min(ends) if is_awaited else max(ends)) - self._clock()) if ends else None

    @property
    def growth(self) -> int:
        """Tokens that all calls of these states are expected to add."""
        return sum(self.expected(kept.kind, kept.added, kept.num_calls) for kept in self._all())

    def mean_calls(self, kind: str) -> float:
        """Of a state of such a program, from its first call until it had no more."""
        return self._mean_calls.get(kind, START_CALLS)

    def expected(self, kind: str, added: int, num_calls: int) -> int:
        """Tokens that further calls of a state will add, if each adds as many as its last one."""
        return int(added * min(max(0.0, self.mean_calls(kind) - num_calls), MAX_EXPECTED))

    def keep(self, asked: FollowUp, lease: Lease, added: int, num_calls: int) -> None:
        """A request has ended whose sequence is leased, to which it has added so many tokens; see _Kept."""
        if self._cache.can_hold and len(self.leases) < MAX_KEPT:
            kept = _Kept(self._cache.share(lease), self._clock() + KEPT_S, kind_of(asked), added, num_calls)
            self.kept.setdefault(owned(asked.owner, asked.program), {}).setdefault(asked.state, []).append(kept)

    def next_request_arrived(self, asked: FollowUp) -> int:
        """The next request of this state is here, and waits for what it needs by itself. How many came before it."""
        released = self._release(owned(asked.owner, asked.program), asked.state)
        return max((kept.num_calls for kept in released), default=0)

    def _release(self, program: str, state: int) -> list[_Kept]:
        """What was kept for it."""
        states = self.kept.get(program, {})
        released = states.pop(state, [])
        for kept in released:
            self._cache.release(kept.lease)
        if not states:
            self.kept.pop(program, None)
        return released

    def end(self, program: str) -> None:
        """It makes no further call."""
        for state in list(self.kept.get(program, ())):
            self._has_ended(program, state)

    def _has_ended(self, program: str, state: int) -> None:
        """Something is kept for it."""
        last = max(self._release(program, state), key=lambda kept: kept.num_calls)
        mean = self.mean_calls(last.kind)
        self._mean_calls[last.kind] = mean + (last.num_calls - mean) / SEEN
        self._mean_calls.move_to_end(last.kind)
        if len(self._mean_calls) > MAX_KINDS:
            self._mean_calls.popitem(last=False)

    def flush(self) -> None:
        for program in list(self.kept):
            self.end(program)

    def after_messages(self) -> None:
        """Those whose time is over; if another call comes, it begins anew."""
        for late in self._until(self._clock()):
            self._has_ended(*late)

    def give_way(self) -> bool:
        """End the earliest of them; False: there is none."""
        first = min((kept.until_s for kept in self._all()), default=None)
        for early in [] if first is None else self._until(first):
            self._release(*early)
        return first is not None

    def _until(self, time_s: float) -> list[tuple[str, int]]:
        return [
            (program, state)
            for program, states in self.kept.items()
            for state, each in states.items()
            if any(kept.until_s <= time_s for kept in each)
        ]

    def _all(self) -> chain[_Kept]:
        return chain.from_iterable(chain.from_iterable(states.values() for states in self.kept.values()))
