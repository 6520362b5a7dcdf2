"""Workers for waiting pieces of media: requests get one in turn, and no owner has more than its share of workers."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import NamedTuple

from ramet.runtime.access.shares import over, part
from ramet.runtime.errors import ServerError
from ramet.runtime.media.worker_process import MediaWorker

CLOSED = "Media are not prepared any more: the engine was closed."


class _WaitingPieces(NamedTuple):
    """The pieces of one request."""

    owner: str
    turns: "deque[asyncio.Future[MediaWorker]]"


class MediaTurns:
    """`most` pieces may wait. `share`: the part of the workers and places that one key may have."""

    def __init__(self, workers: Sequence[MediaWorker], most: int, share: float = 1.0) -> None:
        self._free = list(reversed(workers))  # the last one is next: it was busy last, so its process is running
        self._most, self._max_of_one, self._most_busy = most, part(most, share), part(len(workers), share)
        self._waiting: OrderedDict[Hashable, _WaitingPieces] = OrderedDict()
        self._owners: dict[MediaWorker, str] = {}  # owners of the busy workers
        self._busy = Counter[str]()  # how many workers each owner has
        self._closed = False

    @property
    def num_waiting(self) -> int:
        return sum(len(each.turns) for each in self._waiting.values())

    async def take(self, request: Hashable, place: str, owner: str = "") -> MediaWorker:
        """Wait for a free worker. If cancelled, no worker is taken. Raises ClientError and ServerError."""
        if self._closed:
            raise ServerError(CLOSED, 503)
        if self._free and self._may_have(owner):
            return self._given(self._free.pop(), owner)
        if self.num_waiting >= self._most:
            raise ServerError(f"{place} was not prepared: {self._most} pieces of media wait already.", 503)
        own = sum(len(each.turns) for each in self._waiting.values() if each.owner == owner)
        if owner and own >= self._max_of_one:
            raise over("pieces of media that wait", self._max_of_one, own)
        turn: asyncio.Future[MediaWorker] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(request, _WaitingPieces(owner, deque())).turns.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give(turn.result())
            else:
                self._forget(request, turn)
            raise

    def give(self, worker: MediaWorker) -> None:
        """Return a worker that `take` gave."""
        self._busy[self._owners.pop(worker)] -= 1
        for request, (owner, turns) in list(self._waiting.items()):
            while turns and self._may_have(owner):
                turn = turns.popleft()
                if turns:
                    self._waiting.move_to_end(request)
                else:
                    del self._waiting[request]
                if not turn.done():  # otherwise it was cancelled, and `take` has not run since
                    turn.set_result(self._given(worker, owner))
                    return
        self._free.append(worker)

    def close(self) -> None:
        self._closed = True
        for each in self._waiting.values():
            for turn in each.turns:
                if not turn.done():
                    turn.set_exception(ServerError(CLOSED, 503))
        self._waiting.clear()

    def _may_have(self, owner: str) -> bool:
        """Whether the owner may have one more worker."""
        return not owner or self._busy[owner] < self._most_busy

    def _given(self, worker: MediaWorker, owner: str) -> MediaWorker:
        self._owners[worker] = owner
        self._busy[owner] += 1
        return worker

    def _forget(self, request: Hashable, turn: "asyncio.Future[MediaWorker]") -> None:
        waiting = self._waiting.get(request)
        if waiting is not None:
            with suppress(ValueError):
                waiting.turns.remove(turn)
            if not waiting.turns:
                del self._waiting[request]
