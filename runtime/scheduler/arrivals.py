"""How many messages are taken between two steps, so that one request of thousands keeps no running row waiting.

A turn takes MAX_TAKEN sequences. Beside rows of other requests it takes as many as a small part of the last step's
time is enough for: thousands of short prompts come at once, and each step's rows wait until what has come is queued. So
they wait little longer, on any machine and with any model. Messages keep their order. A prompt counts as often as it is
sampled. What is over waits in the inbox, unread.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from ramet.ipc.messages import Generate, ToScheduler
from ramet.runtime.arrays import Doubles

MAX_TAKEN = 512  # sequences in one turn: 5 to 10 ms. As many as the policy looks at, so its order does not change
MIN_TAKEN = 16  # beside rows of others: 0.2 ms
SHARE = 0.25  # of a step's time that taking lasts there; with 0.15 it was slower than a tokenizer sends short prompts
MOVE = 1.2  # of the time of a sequence, toward the side of the last turn: one that was interrupted counts as any other


class Inbox(Protocol):
    def drain(self, block: bool, timeout_s: float | None = None, most: int | None = None) -> list[ToScheduler]: ...


class TakeShare:
    """How many sequences a turn takes: `most`, and `taken` when it has."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._each_s = 0.0  # that taking a sequence typically lasts; 0: nothing was taken
        self._began_s = self._ended_s = clock()  # when a turn began to take what it takes, and when it had
        self._arrival_s = 0.0  # of the last request that was taken

    def most(self, arrivals: Doubles) -> int:
        """`arrivals`: those of the requests whose rows wait for their next token."""
        self._began_s = self._clock()
        if not self._each_s or (arrivals == self._arrival_s).all():
            return MAX_TAKEN
        return min(max(int(SHARE * (self._began_s - self._ended_s) / self._each_s), MIN_TAKEN), MAX_TAKEN)

    def taken(self, messages: Sequence[ToScheduler], waited: bool) -> None:
        """`waited`: until something arrived."""
        self._ended_s = self._clock()
        num = num_others = 0  # sequences, and messages that bring none
        for message in messages:
            if isinstance(message, Generate):
                self._arrival_s, num = message.arrival_s, num + len(message.uids)
            else:
                num_others += 1
        if waited or num < MIN_TAKEN or num_others:  # other messages last as long as they do
            return
        each_s = (self._ended_s - self._began_s) / num
        self._each_s = self._each_s * (MOVE if each_s > self._each_s else 1 / MOVE) or each_s


def taken_from(inbox: Inbox, block: bool, timeout_s: float | None = None, most: int = MAX_TAKEN) -> list[ToScheduler]:
    """What has arrived, up to `most` sequences; if `block`, at least one message, or none when `timeout_s` passed."""
    taken: list[ToScheduler] = []
    left = most
    while left > 0 and (some := inbox.drain(block and not taken, timeout_s, most=1)):
        taken += some
        for message in some:
            left -= len(message.uids) if isinstance(message, Generate) else 1
    return taken
