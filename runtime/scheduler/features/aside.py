"""Rows whose outputs are parsed aside: each is held out of steps until the mask of its next token is known.

Decides how long a turn waits for the parsers: briefly if a waiting output has been quick so far, or if nothing else can
run. Knows no library and no process.
"""

from collections.abc import Callable, Iterator

from ramet.ipc.message import Uid
from ramet.ipc.messages import Finish, FinishKind
from ramet.runtime.grammar.aside import AsideGrammar
from ramet.runtime.grammar.output import ConstrainedOutput
from ramet.runtime.scheduler.feature import TurnFeature
from ramet.runtime.scheduler.features.constrained import Constrained
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.running import Hold, RunningSet

QUICK_WAIT_S = 0.002  # less than most steps take; a row that misses one has half the speed
ALONE_WAIT_S = 0.005  # a new request waits no longer than this


class AsideRows(TurnFeature):
    """`failed` gives the finish reason of a request whose grammar failed."""

    def __init__(self, running: RunningSet, failed: Callable[[Request, Exception], Finish]) -> None:
        self._running, self._failed = running, failed
        self.work: dict[Uid, tuple[RunningRequest, AsideGrammar]] = {}  # rows whose output may have a process

    def hold(self, running: RunningRequest) -> None:
        """Hold a row whose output is pending out of steps."""
        grammar = _output(running).aside
        assert grammar is not None, running.uid
        grammar.begin()
        self.work[running.uid] = running, grammar
        self._running.hold(running, Hold.ASIDE)

    def settle_held(self, alone: bool) -> Iterator[tuple[RunningRequest, Finish]]:
        """Release the rows whose outputs are no longer pending. Yields those that end, and why.

        `alone`: no other row can run.
        """
        self.settle()
        held = [pair for uid, pair in self.work.items() if Hold.ASIDE in self._running.held.get(uid, Hold(0))]
        if not held:
            return
        quick = any(grammar.is_quick for _, grammar in held)
        held[0][1].parsers.poll(ALONE_WAIT_S if alone else QUICK_WAIT_S if quick else 0.0)
        for running, grammar in held:
            if grammar.pending:
                continue
            self._running.release(running, Hold.ASIDE)
            try:
                grammar.check()
                _output(running).settle()
            except Exception as error:  # noqa: BLE001 - a library may raise anything
                yield running, self._failed(running.request, error)
                continue
            if _output(running).ended:
                yield running, Finish(FinishKind.STOP)

    def settle(self) -> None:
        """End the processes of requests that are no longer running."""
        for uid, (running, grammar) in list(self.work.items()):
            if self._running.get(uid) is not running or _output(running).aside is not grammar:
                grammar.rest()
                del self.work[uid]


def _output(running: RunningRequest) -> ConstrainedOutput:
    return running.request.own[Constrained].output
