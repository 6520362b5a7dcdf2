"""A step that never ends must not hang the server: dump every stack and exit. Knows time and nothing else."""

import faulthandler
import time


class Watchdog:
    """`beat` at least once per step. Silent for `timeout_s` while busy: stacks go to stderr, the process exits with 1.

    faulthandler's timer runs in a C thread, so it fires even if Python is stuck in a call that holds the lock. Setting
    it costs a thread start, so it is set again only when a fraction of the timeout has passed.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._armed_s: float | None = None

    def beat(self, idle: bool) -> None:
        now = time.monotonic()
        if idle:
            if self._armed_s is not None:
                faulthandler.cancel_dump_traceback_later()
            self._armed_s = None
        elif self._armed_s is None or now - self._armed_s > self._timeout_s / 10:
            faulthandler.dump_traceback_later(self._timeout_s, exit=True)
            self._armed_s = now
