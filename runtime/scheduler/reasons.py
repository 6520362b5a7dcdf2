"""Why requests wait, as the last planned step left it. Written by the loop, read by whoever asks."""

from ramet.ipc.messages import Uid

JUST_ARRIVED = "has just arrived"


class QueueWaitReasons:
    """`others`: why those wait that were not asked."""

    def __init__(self) -> None:
        self.refused: dict[Uid, str] = {}
        self.others = JUST_ARRIVED

    def of(self, uid: Uid) -> str:
        return self.refused.get(uid, self.others)
