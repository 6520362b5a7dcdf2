"""Where requests wait to run: by uid, by arrival, and by priority, large requests in round robin (round_robin.py).

wait_reasons.py has why. Requests that only other weights are to compute are held apart, and no policy sees them. Those
whose grammar is still compiled wait in features/constraints.py.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator

from ramet.ipc.message import Uid
from ramet.runtime.cache.prefix import PrefixCache
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.round_robin import RoundRobin, take_out

BULK = 64  # requests from which on they leave the queue together


class WaitingQueue:
    """By uid, by arrival and by priority. A retracted request comes back to the place of its first arrival."""

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self._requests: dict[Uid, Request] = {}
        self._held: dict[Uid, Request] = {}
        self._held_after_s: float | None = None
        self._weights = 0  # the number of those that will compute what waits
        self.num_tokens = 0  # of all of them
        self._by_arrival: list[tuple[float, Uid]] = []  # (arrival_s, uid), sorted
        self._round_robin = RoundRobin()

    def __len__(self) -> int:
        return len(self._requests) + len(self._held)

    @property
    def num_ready(self) -> int:
        """Those that are not held."""
        return len(self._requests)

    @property
    def num_held(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.first(len(self)))

    def first(self, num: int) -> list[Request]:
        """The `num` earliest arrivals, earliest first."""
        return [self._requests[uid] for _, uid in self._by_arrival[:num]]

    def highest(self, num: int) -> list[Request]:
        """The `num` highest priorities, highest first, and among equals the earliest arrival first, in round robin."""
        return list(map(self._requests.__getitem__, self._round_robin.first(num)))

    def add(self, request: Request) -> None:
        if not self._take_in(request):
            return
        self._requests[request.uid] = request
        insort(self._by_arrival, (request.arrival_s, request.uid))
        self._round_robin.add(request.precedence)

    def _take_in(self, request: Request) -> bool:
        """False: it is held."""
        if request.weights != self._weights:
            request.take_weights(self._weights)
        self.num_tokens += len(request.tokens)
        is_held = self._held_after_s is not None and request.arrival_s > self._held_after_s
        if is_held:
            self._held[request.uid] = request
        return not is_held

    def remove(self, uid: Uid) -> Request | None:
        held = self._held.pop(uid, None)
        if held is not None:
            self._taken_out(held)
            return held
        request = self._requests.pop(uid, None)
        if request is not None:
            self._taken_out(request)
            del self._by_arrival[bisect_left(self._by_arrival, (request.arrival_s, uid))]
            self._round_robin.remove(request.precedence)
        return request

    def begin(self, request: Request, now_s: float) -> None:
        """It runs, and waits no longer."""
        self._round_robin.begun(request.precedence, now_s)
        self.remove(request.uid)

    def _taken_out(self, request: Request) -> None:
        self.num_tokens -= len(request.tokens)
        match = request.match
        if match.end is not None:
            self._cache.unwant(match.end)
            match.end, match.version = None, -1

    def remove_all(self, uids: Collection[Uid]) -> dict[Uid, Request]:
        """Those of these that wait, by uid. Of thousands each costs less than by itself."""
        if len(uids) < BULK:
            return {uid: request for uid in uids if (request := self.remove(uid)) is not None}
        found = {uid: request for uid in uids if (request := self.get(uid)) is not None}
        ready = [request for uid, request in found.items() if self._held.pop(uid, None) is None]
        take_out(self._by_arrival, [(request.arrival_s, request.uid) for request in ready])
        self._round_robin.remove_all([request.precedence for request in ready])
        for request in ready:
            del self._requests[request.uid]
        for request in found.values():
            self._taken_out(request)
        return found

    def get(self, uid: Uid) -> Request | None:
        return self._requests.get(uid) or self._held.get(uid)

    def held(self) -> Iterator[Request]:
        """Those that are held, in no order that matters."""
        return iter(self._held.values())

    def is_held(self, uid: Uid) -> bool:
        return uid in self._held

    def hold_after(self, arrival_s: float) -> None:
        """Those that arrived later, and will arrive, until `let_go`."""
        self._held_after_s = arrival_s
        self._add_again(self._requests)

    def let_go(self) -> None:
        self._held_after_s = None
        self._add_again(self._held)

    def take_weights(self, number: int) -> None:
        """Those of this number will compute what waits: nothing that was computed before is of use to it."""
        self._weights = number
        self._held_after_s = None
        self._add_again({**self._requests, **self._held})

    def _add_again(self, requests: dict[Uid, Request]) -> None:
        self._add_all(self.remove_all(list(requests)).values())

    def _add_all(self, requests: Collection[Request]) -> None:
        """As `add`. Of thousands each costs less than by itself."""
        if len(requests) < BULK:
            for request in requests:
                self.add(request)
            return
        ready = []
        for request in requests:
            if self._take_in(request):
                ready.append(request)
        self._requests.update({request.uid: request for request in ready})
        self._by_arrival = sorted([*self._by_arrival, *((each.arrival_s, each.uid) for each in ready)])
        self._round_robin.add_all(each.precedence for each in ready)
