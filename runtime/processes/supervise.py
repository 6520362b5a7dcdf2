"""The parent's watch over its children: one queue of events, one state, one exit code.

Decides when a server drains and when it must end. Knows processes and signals, not what the processes do. When a
child ends unexpectedly, the server gets a message (and ends its requests with an error), stacks are dumped, and the
exit code is not zero. The same code says that the server did not end by itself after a signal.
"""

import logging
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ramet.ipc.channel import Receiver, Sender
from ramet.ipc.messages import Drain, LinesDropped, PeerDied, Ready
from ramet.ipc.paths import SERVER
from ramet.runtime.errors import RametError
from ramet.runtime.processes import signals
from ramet.runtime.processes.outputs import Outputs
from ramet.runtime.processes.service_manager import ServiceManager

log = logging.getLogger("ramet")
HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
INHERITED = (signal.SIGHUP, signal.SIGINT)  # ignored where they were at the start: nohup, a script's background job
LAST_WORDS_S = 5.0  # how long the server may take to end its requests after a process ended
GRACE_S = 10.0  # beyond the drain timeout, for the server to end requests and itself
KILLED_S = 5.0  # for a killed process to be gone: one that waits for a device may stay
TIMELINE_S = 15.0  # for a timeline to be written, when the server ends
DUMP_S = 0.3  # for stacks to be written: a process that is signalled to end before it was scheduled would write none


@dataclass(frozen=True, slots=True)
class Exited:
    name: str
    code: int


@dataclass(frozen=True, slots=True)
class Signalled:
    number: int


class Dropped:
    """Lines of the log could not be written."""


Event = Ready | Exited | Signalled | Dropped


class ChildDied(Exception):
    """A child ended before every child was ready, or a signal came (`name` is "signal")."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} ended with {describe(code)} before the server was ready")
        self.name, self.code = name, code


class Supervisor:
    """Children by name, and the queue that everything that happens to them arrives on."""

    def __init__(
        self, inbox: Receiver[Ready], write_timeline: Callable[[], Path], manager: ServiceManager, outputs: Outputs
    ) -> None:
        """`write_timeline` writes what the processes did lately into a file. Raises OSError."""
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._inbox, self._write_timeline, self._manager = inbox, write_timeline, manager
        self._outputs, self._has_dropped = outputs, threading.Event()
        outputs.listen(self._note_dropped)
        ignored = {number for number in INHERITED if signal.getsignal(number) is signal.SIG_IGN}
        signals.listen(set(HEARD) - ignored, lambda number: self._events.put(Signalled(number)))
        threading.Thread(target=self._read_ready, daemon=True).start()

    def watch(self, name: str, child: subprocess.Popen[bytes]) -> None:
        self._children[name] = child
        threading.Thread(target=lambda: self._events.put(Exited(name, child.wait())), daemon=True).start()

    def wait_ready(self) -> list[Ready]:
        """The Ready of every child, in order of arrival. Raises ChildDied if that cannot be."""
        return self._wait_for(len(self._children))

    def wait_served(self) -> None:
        """The server, which was ready and has got the limits, says so once more when it answers requests."""
        self._wait_for(1)

    def _wait_for(self, num: int) -> list[Ready]:
        ready: list[Ready] = []
        while len(ready) < num:
            match self._events.get():
                case Ready() as message:
                    ready.append(message)
                case Exited(name, code):
                    raise ChildDied(name, code)
                case Signalled(signal.SIGUSR2):
                    self._dump()
                case Signalled(number):
                    raise ChildDied("signal", -number)
                case Dropped():
                    self._has_dropped.clear()
        return ready

    def run(self, server: Sender, drain_timeout_s: float) -> int:
        """Until the end. Returns the exit code: 0 after a drain, 128 + n when signalled twice, 1 after all else."""
        ends_at: float | None = None  # monotonic, while the server drains
        self._tell_dropped(server)
        while True:
            match self._next(ends_at):
                case None:
                    self._report_hang(drain_timeout_s + GRACE_S)
                    return 1
                case Signalled(signal.SIGUSR2):
                    self._dump()
                case Signalled(number):
                    if ends_at is not None:
                        return 128 + number
                    ends_at = time.monotonic() + drain_timeout_s + GRACE_S
                    log.info("draining: running requests finish, new ones get 503 (again to end at once)")
                    self._manager.stopping(drain_timeout_s + GRACE_S + KILLED_S)
                    server.send(Drain(drain_timeout_s))
                case Dropped():
                    self._tell_dropped(server)
                case Exited(name, 0) if name == SERVER and ends_at is not None:
                    return 0
                case Exited(name, code):
                    self._tell_death(name, code, server)
                    return 1

    def stop(self) -> None:
        """Kill every child that is left. None has anything to save: the server has sent its clients what they get."""
        left = [child for child in self._children.values() if child.poll() is None]
        for child in left:
            child.kill()
        ends_at = time.monotonic() + KILLED_S
        for name, child in self._children.items():
            try:
                child.wait(max(0.0, ends_at - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.error("the %s process (%d) was killed and has not ended", name, child.pid)

    def _next(self, ends_at: float | None) -> Event | None:
        """The next event; None when `ends_at` came first."""
        try:
            left = None if ends_at is None else min(max(0.0, ends_at - time.monotonic()), threading.TIMEOUT_MAX)
            return self._events.get(timeout=left)
        except queue.Empty:
            return None

    def _note_dropped(self) -> None:
        """One event at a time, however many lines are dropped meanwhile. Called by the threads that print."""
        if not self._has_dropped.is_set():
            self._has_dropped.set()
            self._events.put(Dropped())

    def _tell_dropped(self, server: Sender) -> None:
        self._has_dropped.clear()
        if any(self._outputs.dropped.values()):
            server.send(LinesDropped(dict(self._outputs.dropped)))

    def _report_hang(self, waited_s: float) -> None:
        log.error("the server process did not end %g s after the signal: it is killed; its stacks follow", waited_s)
        dump = self._dump()
        self._children[SERVER].send_signal(signal.SIGUSR1)
        time.sleep(DUMP_S)
        dump.join(TIMELINE_S)

    def _dump(self) -> threading.Thread:
        """Write a timeline, beside what else is to be done."""
        dump = threading.Thread(target=self._dump_now, daemon=True)
        dump.start()
        return dump

    def _dump_now(self) -> None:
        try:
            log.warning("what the processes did lately is in %s (ui.perfetto.dev opens it)", self._write_timeline())
        except (OSError, ValueError, RametError) as error:
            log.warning("no timeline can be written (--trace-dir): %s", error)

    def _tell_death(self, name: str, code: int, server: Sender) -> None:
        log.error("the %s process ended with %s; stacks of the others follow", name, describe(code))
        dump = self._dump()
        self._end_others(name, code, server)
        dump.join(TIMELINE_S)

    def _end_others(self, name: str, code: int, server: Sender) -> None:
        for child in self._children.values():
            child.send_signal(signal.SIGUSR1)  # nothing happens to one that has ended
        if name == SERVER:
            time.sleep(DUMP_S)
            return
        server.send(PeerDied(name, code))
        try:
            self._children[SERVER].wait(LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            log.error("the server did not end by itself")

    def _read_ready(self) -> None:
        while True:
            message = self._inbox.recv()
            if message is not None:
                self._events.put(message)


def describe(code: int) -> str:
    """An exit code in words."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
