"""Ends what was aborted: nothing of it begins any more, and of thousands some are told in each turn.

Requests leave the queue at once, whose place others may take. A running request computes until its turn has come. The
messages that end them are made a few hundred at a time, because they also take the time of the detokenizer and of the
server.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from ramet.ipc.message import Uid
from ramet.ipc.messages import Abort, Finish
from ramet.runtime.scheduler.core import Core
from ramet.runtime.scheduler.feature import TurnFeature
from ramet.runtime.scheduler.request import Request

MAX_ENDED = 512  # sequences in one turn: some 5 ms here, and as much in the server
RUNNING_COUNTS = 8  # a running request counts as so many, for it gives memory back


class Aborts:
    def __init__(self, core: Core, features: Sequence[TurnFeature]) -> None:
        self._waiting, self._running, self._results, self._features = core.waiting, core.running, core.results, features
        self.left = deque[tuple[Request | Uid, str]]()  # requests, or uids of those that run; and why they end

    def begin(self, messages: Iterable[Abort]) -> None:
        """Nothing of these begins from here on. `proceed` ends them. Many messages cost little more than one."""
        why = {uid: message.message for message in messages for uid in message.uids}
        taken = self._waiting.remove_all(why)
        for uid, message in why.items():
            request = taken.get(uid) or self._remove_apart(uid)
            if request is not None or self._running.get(uid) is not None:
                self.left.append((request or uid, message))

    def _remove_apart(self, uid: Uid) -> Request | None:
        return next((found for each in self._features if each.apart and (found := each.remove(uid))), None)

    def proceed(self) -> None:
        """End as many as a turn may."""
        room = MAX_ENDED
        while self.left and room > 0:
            ended, why = self.left.popleft()
            finish = Finish.abort("", why, status=0)
            if isinstance(ended, Request):
                self._results.close_waiting(ended, finish)
                room -= 1
                continue
            self._end(ended, finish)
            room -= RUNNING_COUNTS

    def _end(self, uid: Uid, finish: Finish) -> None:
        """It ran when it was aborted, and may have ended or been retracted since then."""
        running, waiting = self._running.get(uid), self._waiting.remove(uid)
        if waiting is not None:
            self._results.close_waiting(waiting, finish)
        elif running is not None:
            self._results.close_running(running, finish)
