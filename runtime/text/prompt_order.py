"""The scheduler's inbox for the threads of a tokenizer: what ends a prompt is sent behind it.

Decides what waits for a prompt that a thread tokenises: its Abort alone. Other prompts are sent meanwhile. All that
goes to the scheduler goes through one sender, because two have no order between them.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Sequence

from ramet.ipc.channel import BatchOutbox
from ramet.ipc.message import Message, Uid
from ramet.ipc.messages import Abort


class PromptOrder:
    """An outbox for any number of threads."""

    def __init__(self, scheduler: BatchOutbox) -> None:
        self._scheduler, self._lock = scheduler, threading.Lock()
        self._open: dict[Uid, str | None] = {}  # prompts that threads have -> the message of what ends one
        self._num_of = Counter[str]()  # keys -> how many of these messages

    def send(self, message: Message) -> None:
        with self._lock:
            if type(message) is Abort and self._open:
                message = self._without_open(message)
            self._scheduler.send(message)

    def send_all(self, messages: Iterable[Message]) -> None:
        """None of them an Abort."""
        with self._lock:
            self._scheduler.send_all(messages)

    def leaves(self, owner: str, uids: Sequence[Uid]) -> None:
        """A prompt with these samples, or a batch, will be sent by another thread. Called before any Abort of it."""
        with self._lock:
            self._num_of[owner] += 1
            self._open.update(dict.fromkeys(uids))

    def has_left(self, owner: str) -> bool:
        """Whether a prompt of this key is with another thread."""
        return owner in self._num_of

    def returns(self, owner: str, uids: Sequence[Uid]) -> None:
        """What there was to send of it has been sent: what ended it meanwhile follows."""
        with self._lock:
            self._num_of -= Counter((owner,))
            ended = {uid: why for uid in uids if (why := self._open.pop(uid)) is not None}
            for why in dict.fromkeys(ended.values()):
                self._scheduler.send(Abort([uid for uid in uids if ended.get(uid) == why], why))

    def _without_open(self, abort: Abort) -> Abort:
        """The part that can be sent now."""
        for uid in abort.uids:
            if uid in self._open:
                self._open[uid] = abort.message
        return Abort([uid for uid in abort.uids if uid not in self._open], abort.message)
