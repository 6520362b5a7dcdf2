"""A step that never ends must not hang the server: dump every stack and exit. Knows time and nothing else."""

import faulthandler
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ramet.ipc.ring import Activity, Ring

MARGIN = 1.1  # /health fails at the timeout (server/liveness.py), and the process ends a little later


class Watchdog:
    """`beat` at least once per step. Silent for `timeout_s` while busy: stacks go to stderr, the process exits with 1.

    faulthandler's timer runs in a C thread, so it fires even if Python is stuck in a call that holds the lock. Setting
    it costs a thread start, so it is set again only when a fraction of the timeout has passed. The ring, where the
    server sees it, is told what the scheduler is at; each step moves it (step_events.py).
    """

    def __init__(self, timeout_s: float, ring: Ring) -> None:
        self._timeout_s, self._ring = timeout_s, ring
        self._armed_s: float | None = None
        self._activity = Activity.EXCUSED

    def beat(self, idle: bool) -> None:
        """`idle`: what comes now is a wait for a message, so no step is expected."""
        if idle or self._activity is not Activity.WORKING:  # while it works, steps are what moves it
            self._say(Activity.WAITING if idle else Activity.WORKING)
        now = time.monotonic()
        if idle:
            self._disarm()
        elif self._armed_s is None or now - self._armed_s > self._timeout_s * (MARGIN - 1):
            faulthandler.dump_traceback_later(self._timeout_s * MARGIN, exit=True)
            self._armed_s = now

    @contextmanager
    def excused(self) -> Iterator[None]:
        """No step is expected within the block, whatever waits: weights are read, memory is taken."""
        self._disarm()
        self._say(Activity.EXCUSED)
        try:
            yield
        finally:
            self.beat(idle=False)

    def _say(self, activity: Activity) -> None:
        self._activity = activity
        self._ring.beat(activity)

    def _disarm(self) -> None:
        if self._armed_s is not None:
            faulthandler.cancel_dump_traceback_later()
        self._armed_s = None
