"""Rows whose stop patterns or constraints are slow on the thread of the steps: together they get a share of its time.

A row that has taken more than its free time is held. It is released when enough time has passed to leave most of it to
the others. A request that takes longer than its budget ends. If rows have taken too much of one turn together, what can
wait for the next turn waits. Knows no pattern and no grammar.
"""

from collections import deque
from collections.abc import Callable, Iterator

from ramet.ipc.message import Uid
from ramet.ipc.messages import Finish
from ramet.runtime.scheduler.feature import TurnFeature
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.running import Hold, RunningSet

FREE_S = 0.0005  # processor time for a token for which no row is held
DEBT_S = 0.01  # processor time beyond FREE_S that a row may take before others go first
ALLOWANCE_S = 0.01  # processor time beyond FREE_S that all rows together may take of one step or turn
SHARE = 0.1  # the part of the time that all slow rows together may take while others run


class Allowance:
    """Processor time that rows may take together of one step or turn: FREE_S for each token, ALLOWANCE_S beyond."""

    def __init__(self) -> None:
        self._seconds = 0.0  # beyond what is free

    @property
    def is_spent(self) -> bool:
        """Nothing more is begun that can wait."""
        return self._seconds > ALLOWANCE_S

    def spend(self, seconds: float, num_tokens: int = 1) -> None:
        self._seconds += max(seconds - FREE_S * num_tokens, 0.0)


class SlowRows(TurnFeature):
    """`budget_s`: processor time that one request may take. `clock`: seconds, monotonic."""

    def __init__(self, running: RunningSet, budget_s: float, clock: Callable[[], float]) -> None:
        self._running, self._budget_s, self._clock = running, budget_s, clock
        self._debts: dict[Uid, float] = {}
        self._spent: dict[Uid, float] = {}
        self._held: deque[RunningRequest] = deque()
        self._next_s = 0.0  # when the first held row may be released
        self.turn = 0  # the turn's number
        self.work: list[int] = []  # tokens for which rows have used it
        self._allowance = Allowance()  # of this turn

    def __bool__(self) -> bool:
        return bool(self._held)

    def begin_turn(self) -> None:
        self.turn += 1
        self.work.clear()
        self._allowance = Allowance()

    @property
    def is_spent(self) -> bool:
        """Rows have taken so much of this turn that no more is begun in it."""
        return self._allowance.is_spent

    def spend(self, seconds: float, num_tokens: int) -> None:
        """A row has taken processor time of this turn, for so many tokens. It may have ended."""
        self.work.append(num_tokens)
        self._allowance.spend(seconds, num_tokens)

    def charge(self, running: RunningRequest, seconds: float, what: str, num_tokens: int = 1) -> Finish | None:
        """Charge a request the processor time that `what` took for its last tokens. Returns why it ends, if so."""
        uid = running.uid
        self.spend(seconds, num_tokens)
        debt = self._debts.get(uid, 0.0) + seconds - FREE_S * num_tokens
        if debt <= 0:
            self._debts.pop(uid, None)
            return None
        self._debts[uid] = debt
        spent = self._spent[uid] = self._spent.get(uid, 0.0) + seconds
        if spent > self._budget_s:
            fact = f"took longer than the {self._budget_s:g} s of --grammar-output-s, in {running.num_output} tokens"
            return Finish.abort(what, fact)
        if debt > DEBT_S and Hold.SLOW not in self._running.held.get(uid, Hold(0)):
            self._running.hold(running, Hold.SLOW)
            self._held.append(running)
        return None

    def release_due(self, alone: bool) -> None:
        """Release the rows whose turn has come. `alone`: no other row can run."""
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


class LateRows:
    """Rows for which a step had no time, in order: each is held until a later turn has done what is left of it."""

    def __init__(self, running: RunningSet, slow: SlowRows) -> None:
        self._running, self._slow = running, slow
        self._rows: deque[RunningRequest] = deque()
        self.step = Allowance()  # of what the tokens of this step lead to

    def begin_step(self) -> None:
        self.step = Allowance()

    def is_late(self, running: RunningRequest) -> bool:
        """The step's tokens leave no time for its own. States are returned with the step that ends a request."""
        return self.step.is_spent and running.request.spec.hidden is None

    def wait(self, running: RunningRequest) -> None:
        """Hold the row until a later turn has time for it."""
        if Hold.LATE not in self._running.held.get(running.uid, Hold(0)):
            self._running.hold(running, Hold.LATE)
            self._rows.append(running)

    def due(self) -> Iterator[RunningRequest]:
        """Rows that have waited for this turn. What is left of each is done before the next one is asked for."""
        for _ in range(len(self._rows)):
            if self._slow.is_spent:
                return
            running = self._rows.popleft()
            if self._running.get(running.uid) is running:
                self._running.release(running, Hold.LATE)
                yield running
