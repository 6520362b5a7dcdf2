"""LongRoPE's limit: a sequence that outgrows it has other keys from its first token on, so it begins anew.

Only of models that have such a limit.
"""

from ramet.runtime.scheduler.feature import TurnFeature
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
        running = self._running
        outgrown = [running.put_back(each) for each in running if each.total > running.table.ends[each.row]]
        for request in outgrown:
            request.is_long = True
        return outgrown
