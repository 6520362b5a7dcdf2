"""Which running request is retracted when memory runs out: the one of the lowest priority, with the fewest output
tokens, that arrived last. What clients hold gives way only when a single request is left that does not fit beside it.
"""

from collections.abc import Callable

from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.running import RunningSet


class Retraction:
    def __init__(self, running: RunningSet, fail: Callable[[RunningRequest, str], None]) -> None:
        """`fail` ends a request with an error."""
        self._running, self._fail = running, fail

    def make_room(self) -> list[Request] | None:
        """A slot for the next token of every decoding row, retracting requests if need be. Returns the retracted.

        None: memory is short, but steps are in flight; what they hold may be enough, so apply their results first.
        """
        running = self._running
        if running.stuck and running.memory.deferred.in_flight:
            return None
        stuck, running.stuck = running.stuck, []
        retracted = list[Request]()
        for each in stuck:
            if running.get(each.uid) is each:
                retracted += self._free(each)
        while len(rows := running.memory.without_slot(running.decoding)) and not running.memory.add_pages(rows):
            if running.memory.deferred.in_flight:
                return None
            retracted += self.free_some()
        return retracted

    def free_some(self) -> list[Request]:
        """Memory is short and no step is in flight: end what is kept for a client, or retract a request.

        One that does not fit alone would come back for ever: it has needed more than was known when it arrived.
        """
        alone = len(self._running) <= 1
        return [] if self._running.give_way(alone) else self._free(min(self._running, key=_standing))

    def _free(self, running: RunningRequest) -> list[Request]:
        if len(self._running) > 1:
            return [self._running.retract(running)]
        total = self._running.memory.cache.total_tokens
        self._fail(running, f"does not fit the {total} tokens of the KV pool by itself")
        return []


def _standing(running: RunningRequest) -> tuple[int, int, float, int]:
    priority, arrival_s, uid = running.request.precedence
    return -priority, running.num_output, -arrival_s, -uid
