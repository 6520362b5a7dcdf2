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
        return self._running.take_outgrown()
