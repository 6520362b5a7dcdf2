"""Rows that outgrow LongRoPE's limit: they go back to waiting, and begin anew."""

from ramet.runtime.scheduler.feature import TurnFeature
from ramet.runtime.scheduler.features.long_rope import LongRope
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.running import RunningSet


class OutgrownRows(TurnFeature):
    work = (True,)  # any row may outgrow the limit

    def __init__(self, running: RunningSet) -> None:
        self._running = running

    def take_back(self) -> list[Request]:
        """Requests that are longer now than what they have computed is good for.

        No step in flight has one of them: none is planned once the token that is too much may be drawn.
        """
        outgrown = []
        for each in self._running:
            own = each.request.own[LongRope]
            if not own.is_long and each.total > own.limit:
                outgrown.append(self._running.put_back(each))
                own.outgrow(each.request)
        return outgrown
