"""Whether the processes that a request goes through move: what /health and /ready say, and the service manager is told.

The answer is made from the rings of these processes (ipc/ring.py), so it waits for none of them. A process that works
must move within --watchdog-timeout, however busy it is: each message and each step moves it. One that waits for a
message is sent one that means nothing while any request is open, and must move then. Nothing is expected of one that
is excused, as while weights are read; nor of a scheduler that waits, as while it is paused.
"""

import asyncio
import time
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import NoReturn

from ramet.ipc import paths
from ramet.ipc.channel import Sender
from ramet.ipc.messages import Abort, TokenStep
from ramet.ipc.paths import SocketFolder
from ramet.ipc.ring import Activity, MessageRing, RingView, silence_s
from ramet.runtime.errors import ServerError

MAX_BETWEEN_S = 1.0  # two looks at the processes
LOOKS = 5  # in a timeout, at least


@dataclass
class WatchedProcess:
    """Another process. `ask` sends it a message that changes nothing; a process that waits moves when it comes."""

    name: str
    ring: Path
    ask: Callable[[], None]
    asked_s: float = inf  # when it was asked and has not moved since
    view: RingView | None = None


def peers_of(sockets: SocketFolder, num_tokenizers: int) -> list[WatchedProcess]:
    """In the order in which a request reaches them."""
    takers = [*map(paths.tokenizer, range(num_tokenizers)), paths.SCHEDULER]
    signs = dict.fromkeys(takers, Abort([])) | {paths.DETOKENIZER: TokenStep([], b"")}
    return [
        WatchedProcess(name, sockets.ring(name), partial(Sender(sockets.address(name)).send, sign))
        for name, sign in signs.items()
    ]


class Liveness:
    """`unanswered`: there is work while one of these is not empty."""

    def __init__(
        self,
        peers: Sequence[WatchedProcess],
        timeout_s: float,
        unanswered: Sequence[Sized],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._peers, self._timeout_s, self._unanswered, self._clock = peers, timeout_s, unanswered, clock

    def check(self) -> None:
        """Raises ServerError (503) if a process has not moved for the timeout although it should."""
        now_s = self._clock()
        for peer in self._peers:
            silent_s = silence_s(_view(peer).pulse(), now_s, peer.asked_s)
            if silent_s > self._timeout_s:
                fact = f"The {peer.name} process has not moved for {silent_s:.0f} s although there is work"
                raise ServerError(f"{fact} (--watchdog-timeout {self._timeout_s:g}).", 503)

    def look(self) -> None:
        """Ask those that wait for a message, while there is work."""
        now_s, has_work = self._clock(), any(map(len, self._unanswered))
        for peer in self._peers:
            pulse = _view(peer).pulse()
            if pulse.beat_s >= peer.asked_s or not has_work:
                peer.asked_s = inf
            if has_work and pulse.activity is Activity.WAITING and peer.asked_s == inf:
                peer.asked_s = now_s
                peer.ask()

    async def watch(self, ring: MessageRing) -> NoReturn:
        """For ever; the server's own ring says each time that it moves, and whether the others do."""
        while True:
            self.look()
            ring.beat(Activity.WORKING if self.is_alive else Activity.STUCK)
            await asyncio.sleep(min(MAX_BETWEEN_S, self._timeout_s / LOOKS))

    @property
    def is_alive(self) -> bool:
        try:
            self.check()
        except ServerError:
            return False
        return True


def _view(peer: WatchedProcess) -> RingView:
    if peer.view is None:
        peer.view = RingView(peer.ring)
    return peer.view
