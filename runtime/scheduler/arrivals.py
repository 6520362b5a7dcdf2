"""How many messages are taken between two steps, so that one request of thousands keeps no running row waiting.

Messages keep their order. A prompt counts as often as it is sampled. What is over waits in the inbox, unread.
"""

from typing import Protocol

from ramet.ipc.messages import Admit, ToScheduler

MAX_TAKEN = 512  # sequences in one turn: 5 to 10 ms. As many as the policy looks at, so its order does not change


class Inbox(Protocol):
    def drain(self, block: bool, timeout_s: float | None = None, most: int | None = None) -> list[ToScheduler]: ...


def taken_from(inbox: Inbox, block: bool, timeout_s: float | None = None) -> list[ToScheduler]:
    """What has arrived, for one turn; if `block`, at least one message, or none when `timeout_s` passed first."""
    taken: list[ToScheduler] = []
    left = MAX_TAKEN
    while left > 0 and (some := inbox.drain(block and not taken, timeout_s, most=1)):
        taken += some
        for message in some:
            left -= len(message.uids) if isinstance(message, Admit) else 1
    return taken
