"""Lines that a thread writes: whoever has a line goes on at once, however slow the disk or the terminal is.

Decides how many lines may wait (further ones are dropped, and the log says how many), when a file is full, and which
old ones are deleted. A file that something else has moved or deleted, as logrotate does, is opened anew. Knows nothing
of what the lines say.
"""

import atexit
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from ramet.runtime.log import LOGGER

MAX_WAITING = 1 << 14  # lines
MAX_WAITING_BYTES = 1 << 25  # of them, as their writers count
MAX_BATCH = 256  # lines of one write
SAID_EVERY_S = 1.0  # that lines were dropped
LAST_WRITES_S = 2.0
DROPPED = "were dropped: they come faster than they are written"
FILE_NAME = "requests.log"

Line = Callable[[], bytes]  # makes one, without its end, on the thread


class Sink(Protocol):
    def write(self, lines: list[bytes]) -> None:
        """May raise OSError; then they are lost."""


class LoggerSink:
    """Regular lines of this process's log."""

    def write(self, lines: list[bytes]) -> None:
        for line in lines:
            LOGGER.info("%s", line.decode())


class StdoutSink:
    def write(self, lines: list[bytes]) -> None:
        sys.stdout.buffer.write(b"\n".join(lines) + b"\n")
        sys.stdout.buffer.flush()


class RotatingFile:
    """FILE_NAME in a folder, behind it FILE_NAME.1 and so on: `num_files` in all, the last one is deleted.

    A file has at most `max_bytes`, or one line that is longer. Its owner alone can read it.
    """

    def __init__(self, folder: Path, max_bytes: int, num_files: int) -> None:
        self._path, self._max_bytes, self._num_files = folder / FILE_NAME, max_bytes, num_files
        self._file: int | None = None
        self._size = 0

    def write(self, lines: list[bytes]) -> None:
        if self._file is not None and self._is_moved(self._file):
            self._close()
        for line in lines:
            self._write(line + b"\n")

    def _write(self, data: bytes) -> None:
        file = self._open() if self._file is None else self._file
        if self._size and self._size + len(data) > self._max_bytes:
            self._rotate()
            file = self._open()
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        self._size += len(data)

    def _open(self) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._file).st_size
        return self._file

    def _is_moved(self, file: int) -> bool:
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return True
        return not os.path.samestat(there, os.fstat(file))

    def _rotate(self) -> None:
        self._close()
        names = [self._path, *(Path(f"{self._path}.{i}") for i in range(1, self._num_files))]
        if len(names) == 1:
            self._path.unlink(missing_ok=True)
        for older, newer in reversed(list(zip(names[1:], names, strict=False))):
            if newer.exists():
                newer.replace(older)

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class LineWriter:
    """A thread that begins with the first line and writes each to all `sinks`."""

    def __init__(self, sinks: Sequence[Sink], clock: Callable[[], float] = time.monotonic) -> None:
        self._sinks, self._clock = sinks, clock
        self._waiting: deque[tuple[Line, int]] = deque()
        self._num_bytes = self._num_dropped = 0
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._closes = False
        self._said_s = -SAID_EVERY_S

    def put(self, line: Line, size: int) -> None:
        """`size`: bytes that it keeps in memory, about."""
        with self._lock:
            if len(self._waiting) >= MAX_WAITING or self._num_bytes + size > MAX_WAITING_BYTES:
                self._num_dropped += 1
                return
            self._waiting.append((line, size))
            self._num_bytes += size
            if self._thread is None:
                self._begin()
            self._news.notify()

    def close(self) -> None:
        """Writes what waits, for LAST_WRITES_S at most."""
        with self._lock:
            thread, self._closes = self._thread, True
            self._news.notify()
        if thread is not None:
            thread.join(LAST_WRITES_S)
            atexit.unregister(self.close)

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name="log-lines", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def _run(self) -> None:
        while taken := self._take():
            lines = [line for make, _ in taken if (line := self._made(make))]
            for sink in self._sinks:
                try:
                    sink.write(lines)
                except (OSError, ValueError) as error:  # ValueError: stdout is closed
                    self._lose(len(lines), f"cannot be written: {error}")
            with self._lock:
                self._num_bytes -= sum(size for _, size in taken)
                dropped = self._num_dropped
            if dropped:
                self._lose(0, DROPPED)
        self._said_s = -SAID_EVERY_S
        if self._num_dropped:
            self._lose(0, DROPPED)

    def _made(self, make: Line) -> bytes:
        try:
            return make()
        except Exception:  # noqa: BLE001  a bug in one line keeps no others back
            LOGGER.exception("a line of the log of requests cannot be made")
            return b""

    def _take(self) -> list[tuple[Line, int]]:
        """Some lines, waiting for the first; none: it ends."""
        with self._lock:
            while not self._waiting and not self._closes:
                self._news.wait()
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_BATCH))]

    def _lose(self, num: int, why: str) -> None:
        """So many more are lost; says it, though not too often."""
        with self._lock:
            self._num_dropped += num
            now = self._clock()
            if now - self._said_s < SAID_EVERY_S:
                return
            lost, self._num_dropped, self._said_s = self._num_dropped, 0, now
        LOGGER.warning("%d lines of the log of requests %s", lost, why)
