"""How many prompt tokens a step still computes. Decides what each prompt may take of it."""

from collections.abc import Iterator

from ramet.runtime.scheduler.features.media import RequestMedia
from ramet.runtime.scheduler.features.pace import StepTime
from ramet.runtime.scheduler.features.returned import ReturnBudget, returns_prompt
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.step import Prefill


class PrefillBudget:
    """What one step may still compute of prompts. The first that takes of it gets one token at least.

    `time`: the step's, which prompts may not make too long; None: it has no bound.
    """

    def __init__(self, tokens: int, hidden_size: int, time: StepTime | None = None) -> None:
        self.tokens, self._hidden_size, self._time = tokens, hidden_size, time
        self._returned: ReturnBudget | None = None  # made where something is returned of a prompt
        self._least = 1

    def take(self, running: RunningRequest) -> Iterator[Prefill]:
        """The next tokens of a prompt, as many as fit."""
        start, wanted = running.scheduled, running.target - running.scheduled
        tokens, request = self.tokens, running.request
        is_returned = bool(request.flags & RowFlag.RETURNS) and returns_prompt(running)
        if self._time is not None and wanted > 0 and tokens > 0:
            tokens = self._time.most(start, tokens if is_returned else min(wanted, tokens))
        num = cost = min(wanted, tokens)
        if is_returned and num > 0:
            self._returned = self._returned or ReturnBudget(self._hidden_size)
            num = max(self._returned.limit(running, num, tokens), self._least)
            cost = self._returned.take(running, num)
        if num > 0 and (media := request.own.get(RequestMedia)) is not None:
            num, cost = self._uncut(media, start, num, cost)
        if self._time is not None:
            self._time.add(start, cost)
            if num < wanted:
                self.tokens = 0  # the step is as long as it may be
        if num > 0:
            self._least = 0
            self.tokens -= cost
            yield Prefill(running, num)

    def _uncut(self, media: RequestMedia, start: int, num: int, cost: int) -> tuple[int, int]:
        """(tokens, cost) where no piece is cut whose tokens see each other: the first of a step has one at least."""
        if not media.is_whole:
            return num, cost
        earlier, later = media.whole(start, start + num)
        taken = earlier - start if earlier > start or not self._least else later - start
        return taken, cost + taken - num
