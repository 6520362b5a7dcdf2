"""How many prompt tokens a step still computes. Decides what each prompt may take of it."""

from collections.abc import Callable, Sequence

from ramet.runtime.scheduler.feature import PromptLimit, TimeLeft
from ramet.runtime.scheduler.rows import RowTable, RunningRequest

Limits = Sequence[tuple[int, Callable[[], PromptLimit]]]  # by the bits of rows (RowFlag), in their order


class PrefillBudget:
    """What one step may still compute of prompts, in tokens, and what it computes of each: `prefills`, by row, in their
    order. The first that takes of it gets one token at least.

    `time`: the step's, which prompts may not make too long; None: it has no bound.
    """

    def __init__(self, table: RowTable, tokens: int, limits: Limits, time: TimeLeft | None = None) -> None:
        self.tokens, self._table, self._limits, self._time = tokens, table, limits, time
        self._made: dict[int, PromptLimit] = {}  # by bits: those of rows that the step has
        self.prefills: dict[int, int] = {}

    def take(self, running: RunningRequest) -> int:
        """How many of the next tokens of a prompt the step computes: as many as fit, maybe none."""
        start, wanted = running.scheduled, running.target - running.scheduled
        num = cost = min(wanted, self.tokens)
        room, flags = self.tokens, int(self._table.flags[running.row])
        if self._time is not None and num > 0:
            room = self._time.most(start, room)
            num = cost = min(wanted, room)
        for bits, make in self._limits:
            if flags & bits and num > 0:
                limit = self._made.get(bits) or self._made.setdefault(bits, make())
                num, cost = limit.take(running, num, cost, room, is_first=not self.prefills)
        if self._time is not None:
            self._time.add(start, cost)
            if num < wanted:
                self.tokens = 0  # the step is as long as it may be
        if num > 0:
            self.tokens -= cost
            self.prefills[running.row] = num
        return max(num, 0)
