"""What a service manager is told (sd_notify), where NOTIFY_SOCKET names its socket. Runs in the parent process alone.

A service of Type=notify is started when requests are answered, and its start may take as long as the model takes to
load. With WatchdogSec= it is pinged for as long as the server is well as /health says (server/liveness.py): the parent
reads that in the server's ring, so a server whose event loop hangs gets no ping either. No package is needed.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import MutableMapping
from pathlib import Path

from ramet.ipc.ring import Activity, RingView, silence_s

log = logging.getLogger("ramet")
MORE_S = 30.0  # by which a start that goes on may take longer each time
AGAIN_S = 10.0  # after which it is said again
MAX_WATCHDOG_S = 86400.0  # a manager that waits longer is pinged as if it waited for so long
PINGS = 3  # within the time that the manager gives


class ServiceManager:
    """`address`: of its socket, empty where there is none. `watchdog_s`: within which it wants a ping; None: none."""

    def __init__(self, address: str, watchdog_s: float | None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self._started, self._is_stopping = threading.Event(), False

    @classmethod
    def taken_from(cls, env: MutableMapping[str, str]) -> "ServiceManager":
        """Removes what names it, so that no child process speaks to it as well."""
        address, within, pid = (env.pop(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"))
        if address and address[0] not in "/@":
            log.warning("NOTIFY_SOCKET is %s, which is not a Unix socket: the service manager is told nothing", address)
            address = ""
        is_wanted = within.isdecimal() and float(within) > 0 and pid in ("", str(os.getpid()))
        return cls(address, min(float(within) / 1e6, MAX_WATCHDOG_S) if is_wanted else None)

    def starting(self) -> None:
        """The start goes on until `ready` or `stopping`."""
        if self._address:
            threading.Thread(target=self._extend, daemon=True).start()

    def ready(self, url: str, server: Path, timeout_s: float) -> None:
        """Requests are answered at `url`. `server`: the ring of the server process, which moves within `timeout_s`."""
        self._started.set()
        self._tell("READY=1", f"STATUS=serves at {url}")
        if self._address and self._watchdog_s is not None:
            threading.Thread(target=self._ping, args=(server, timeout_s, self._watchdog_s), daemon=True).start()

    def stopping(self, within_s: float) -> None:
        """It ends within this time."""
        self._started.set()
        if not self._is_stopping:
            self._is_stopping = True
            self._tell("STOPPING=1", "STATUS=draining: running requests finish", _extension(within_s))

    def _extend(self) -> None:
        while not self._started.is_set():
            self._tell("STATUS=starting: the model is being loaded", _extension(MORE_S))
            self._started.wait(AGAIN_S)

    def _ping(self, server: Path, timeout_s: float, within_s: float) -> None:
        view, was_well = RingView(server), True
        while True:
            pulse = view.pulse()
            is_well = pulse.activity is Activity.WORKING and silence_s(pulse, time.monotonic()) <= timeout_s
            if is_well:
                self._tell("WATCHDOG=1")
            elif was_well:
                log.error("the service manager gets no pings any more: a process does not move (/health says which)")
            was_well = is_well
            time.sleep(within_s / PINGS)

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(1.0)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            log.warning("the service manager could not be told %s: %s", lines[0], error)


def _extension(seconds: float) -> str:
    return f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}"
