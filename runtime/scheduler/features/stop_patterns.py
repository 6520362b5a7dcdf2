"""Rows with stop patterns, which take milliseconds to read and may take as long to search.

Decides which rows a step searches: when they have spent its allowance, the last tokens of the others wait for a later
turn, in order, and their rows are held until then. A token is told when it is known whether the output ends with it, so
that the detokenizer, which searches the same text, is never given more at once.
"""

import time
from collections.abc import Callable

from ramet.ipc.message import Uid
from ramet.ipc.messages import Finish, Logprobs
from ramet.runtime.grammar.base import MAX_FORCED_BYTES
from ramet.runtime.scheduler.features.rewriting import RewrittenRows
from ramet.runtime.scheduler.features.slow_rows import LateRows, SlowRows
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.text.pattern import build_automaton

MAX_SEARCHED = 50_000  # states of stop patterns, times bytes of forced text that a step searches: 10 ms


def forced_bytes(patterns: tuple[str, ...]) -> int:
    """How much forced text a step may append and search for these stop patterns: a number of any load or machine."""
    states = sum(build_automaton(pattern).size for pattern in patterns)
    return min(max(MAX_SEARCHED // states, 1), MAX_FORCED_BYTES) if states else MAX_FORCED_BYTES


class PatternRows:
    """`decide` says whether a token ends its request, `send` tells the client of one more token."""

    def __init__(
        self,
        rewritten: RewrittenRows,
        slow: SlowRows,
        late: LateRows,
        *,
        decide: Callable[[RunningRequest, int], Finish | None],
        send: Callable[[Uid, int, Logprobs | None], None],
    ) -> None:
        self._rewritten, self._slow, self._late = rewritten, slow, late
        self._decide, self._send = decide, send
        self._left: dict[Uid, Logprobs | None] = {}  # of the last tokens that wait

    def begin(self, running: RunningRequest) -> None:
        """It may have been retracted while its last token waited."""
        if running.uid in self._left:
            self._late.wait(running)

    def push(self, running: RunningRequest, token: int, logprobs: Logprobs | None) -> Finish | None:
        """`token` was drawn. Why its request ends."""
        if not self._late.is_late(running):
            return self._search(running, token, logprobs)
        self._left[running.uid] = logprobs
        self._rewritten.drop_planned(running)
        self._late.wait(running)
        return None

    def catch_up(self, running: RunningRequest) -> Finish | None:
        """Search what its last token added."""
        return self._search(running, int(running.output[-1]), self._left.pop(running.uid))

    def forget(self, uid: Uid) -> None:
        self._left.pop(uid, None)

    def _search(self, running: RunningRequest, token: int, logprobs: Logprobs | None) -> Finish | None:
        begun_s = time.thread_time()
        finish = self._decide(running, token)
        seconds = time.thread_time() - begun_s
        self._send(running.uid, token, logprobs)
        self._late.step.spend(seconds)
        if finish is None:
            return self._slow.charge(running, seconds, "stop_regex")
        self._slow.spend(seconds, 1)
        return finish
