"""Rows whose stop patterns or constraints take long on the thread of the steps: together they get a share of its time.

A row that has taken more than a moment is held, and released when as much time has passed as leaves others most of it.
One request may take so much altogether, and ends then. Knows no pattern and no grammar.
"""

from collections import deque
from collections.abc import Callable

from ramet.ipc.message import Uid
from ramet.ipc.messages import Finish, FinishKind
from ramet.runtime.scheduler.request import RunningRequest
from ramet.runtime.scheduler.running import Hold, RunningSet

FREE_S = 0.0005  # of a token: nobody is held for less
DEBT_S = 0.01  # beyond that, before a row is held
SHARE = 0.1  # of the time that all of them may take where others run


class SlowRows:
    """`budget_s`: what one request may take. `clock` tells how much time has passed."""

    def __init__(self, running: RunningSet, budget_s: float, clock: Callable[[], float]) -> None:
        self._running, self._budget_s, self._clock = running, budget_s, clock
        self._debts: dict[Uid, float] = {}
        self._spent: dict[Uid, float] = {}
        self._held: deque[RunningRequest] = deque()
        self._next_s = 0.0  # when the first of them may be released

    def __bool__(self) -> bool:
        return bool(self._held)

    def charge(self, running: RunningRequest, seconds: float, what: str, num_tokens: int = 1) -> Finish | None:
        """`what` took its last tokens so long, in processor time. Why its request ends, if that is too much."""
        uid = running.uid
        debt = self._debts.get(uid, 0.0) + seconds - FREE_S * num_tokens
        if debt <= 0:
            self._debts.pop(uid, None)
            return None
        self._debts[uid] = debt
        spent = self._spent[uid] = self._spent.get(uid, 0.0) + seconds
        if spent > self._budget_s:
            fact = f"took longer than the {self._budget_s:g} s of --grammar-output-s, in {running.num_output} tokens"
            return Finish(FinishKind.ABORT, message=f"{what} {fact}", status=400, place=what)
        if debt > DEBT_S and running not in self._held:
            self._running.hold(running, Hold.SLOW)
            self._held.append(running)
        return None

    def settle(self, alone: bool) -> None:
        """Release whose turn it is. `alone`: nothing else can run."""
        while self._held and (alone or self._clock() >= self._next_s):
            running = self._held.popleft()
            if self._running.get(running.uid) is not running:
                continue
            self._running.release(running, Hold.SLOW)
            self._next_s = self._clock() + self._debts.pop(running.uid, 0.0) / SHARE
            if alone:
                return

    def forget(self, uid: Uid) -> None:
        self._debts.pop(uid, None)
        self._spent.pop(uid, None)
