"""The requests that wait to run. Decides nothing but who is here and who came first; the order is the policy's."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from ramet.ipc.messages import Uid
from ramet.runtime.request import Request


class WaitingQueue:
    """By uid, by arrival and by priority. A retracted request comes back to the place of its first arrival."""

    def __init__(self) -> None:
        self._requests: dict[Uid, Request] = {}
        self._by_arrival: list[tuple[float, Uid]] = []  # (arrival_s, uid), sorted
        self._by_rank: list[tuple[int, float, Uid]] = []  # ranks, sorted

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.first(len(self)))

    def first(self, num: int) -> list[Request]:
        """The `num` earliest arrivals, earliest first."""
        return [self._requests[uid] for _, uid in self._by_arrival[:num]]

    def highest(self, num: int) -> list[Request]:
        """The `num` highest priorities, highest first, and among equals the earliest arrival first."""
        return [self._requests[uid] for _, _, uid in self._by_rank[:num]]

    def add(self, request: Request) -> None:
        self._requests[request.uid] = request
        insort(self._by_arrival, (request.arrival_s, request.uid))
        insort(self._by_rank, request.rank)

    def remove(self, uid: Uid) -> Request | None:
        request = self._requests.pop(uid, None)
        if request is not None:
            del self._by_arrival[bisect_left(self._by_arrival, (request.arrival_s, uid))]
            del self._by_rank[bisect_left(self._by_rank, request.rank)]
        return request

    def get(self, uid: Uid) -> Request | None:
        return self._requests.get(uid)
