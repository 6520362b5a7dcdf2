"""Why each waiting request waits, as the last step found: for metrics, for /v1/requests and for the page.

planning.py writes it: the words are admission.py's or a feature's (`waits` of request_feature.py). Requests that wait
apart from the queue, as for a grammar, say so themselves (`why_apart`).
"""

from collections import Counter
from typing import NamedTuple

from ramet.ipc.message import Uid
from ramet.ipc.stats import WaitKind
from ramet.runtime.scheduler.queue import WaitingQueue


class WaitReason(NamedTuple):
    """Why a request waits, for metrics and for people."""

    kind: WaitKind
    text: str


JUST_ARRIVED = WaitReason(WaitKind.ARRIVAL, "has just arrived")


class WaitReasons:
    """Why each request of the queue waits, as the last step found."""

    def __init__(self) -> None:
        self._refused: dict[Uid, WaitReason] = {}
        self._others = JUST_ARRIVED  # of those that were not asked

    def begin(self) -> None:
        """Of a new step."""
        self._refused.clear()
        self._others = JUST_ARRIVED

    def note(self, uid: Uid, reason: WaitReason) -> None:
        self._refused[uid] = reason

    def end(self, kind: WaitKind, text: str) -> None:
        """Nobody else is asked in this step."""
        self._others = WaitReason(kind, text)

    def of(self, uid: Uid) -> str:
        return self._refused.get(uid, self._others).text

    def counts(self, waiting: WaitingQueue) -> tuple[tuple[str, int], ...]:
        """How many wait for what; together they are all that wait."""
        found = Counter(reason.kind for uid, reason in self._refused.items() if waiting.get(uid) is not None)
        found[WaitKind.WEIGHTS] = waiting.num_held
        found[self._others.kind] += len(waiting) - found.total()
        return tuple((kind.value, num) for kind, num in found.items() if num)
