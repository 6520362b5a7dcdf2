"""Lines written by a thread of their own: the caller continues at once, however slow the disk, pipe or terminal is.

Decides how many lines may wait (further ones are dropped and counted, and the log says how many when writing works
again), when a file is full, and which old files are deleted. A file that another program has moved or deleted, for
example logrotate, is opened anew. Does not look into the lines.
"""

import atexit
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ramet.runtime.log import LOGGER

MAX_WAITING = 1 << 14  # lines
MAX_WAITING_BYTES = 1 << 25  # bytes of waiting lines, by the sizes given to `put`
MAX_BATCH = 256  # lines that are taken at once
SAID_EVERY_S = 1.0  # minimum time between two warnings that lines were dropped
LAST_WRITES_S = 2.0
FILE_NAME = "requests.log"

Line = Callable[[], bytes]  # makes one line, without its newline, on the thread


class LineSink(Protocol):
    def write(self, line: bytes) -> None:
        """Writes the line and a newline. May raise OSError or ValueError; then the line is lost."""


class LoggerSink:
    """Regular lines of this process's log."""

    def write(self, line: bytes) -> None:
        LOGGER.info("%s", line.decode())


class Descriptor:
    """An open file, pipe or terminal, which may block."""

    def __init__(self, number: int) -> None:
        self._number, self._is_cut = number, False

    def write(self, line: bytes) -> None:
        data = b"\n" + line + b"\n" if self._is_cut else line + b"\n"
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._some(rest) :]
        finally:
            if len(rest) != len(data):  # otherwise nothing was written, and the state is unchanged
                self._is_cut = bool(rest)

    def _some(self, data: memoryview) -> int:
        """Write some of it and return the number of bytes. Whoever shares the file may have made it non-blocking."""
        while True:
            try:
                return os.write(self._number, data)
            except BlockingIOError:
                select.select([], [self._number], [])


class StdoutSink:
    """Writes past Python's buffer if possible: its lock must not be held when the process ends."""

    def write(self, line: bytes) -> None:
        try:
            number = sys.stdout.fileno()
        except OSError:  # the program replaced sys.stdout
            sys.stdout.buffer.write(line + b"\n")
            sys.stdout.buffer.flush()
        else:
            Descriptor(number).write(line)


class RotatingFile:
    """FILE_NAME in a folder and its older versions FILE_NAME.1, FILE_NAME.2 ...: `num_files` files in all.

    The oldest one is deleted. A file has at most `max_bytes`, or one longer line. Only its owner can read it.
    """

    def __init__(self, folder: Path, max_bytes: int, num_files: int) -> None:
        self._path, self._max_bytes, self._num_files = folder / FILE_NAME, max_bytes, num_files
        self._file: int | None = None
        self._open_file: Descriptor | None = None
        self._size = 0

    def write(self, line: bytes) -> None:
        if self._file is not None and self._is_moved(self._file):
            self._close()
        file = self._open() if self._open_file is None else self._open_file
        if self._size and self._size + len(line) + 1 > self._max_bytes:
            self._rotate()
            file = self._open()
        file.write(line)
        self._size += len(line) + 1

    def _open(self) -> Descriptor:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._open_file = Descriptor(self._file)
        self._size = os.fstat(self._file).st_size
        return self._open_file

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
            self._file = self._open_file = None


class LineWriter:
    """A thread that starts with the first line and writes each line to `sink`, which messages call `name`.

    `lost` is called with the number of lines just dropped, on any thread but one call at a time. `most` lines may wait.
    """

    def __init__(
        self,
        sink: LineSink,
        name: str,
        lost: Callable[[int], None] = lambda _: None,
        most: int = MAX_WAITING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink, self._name, self._lost, self._most, self._clock = sink, name, lost, most, clock
        self._waiting: deque[tuple[Line, int]] = deque()
        self._num_bytes = self._num_dropped = 0  # _num_dropped: lines that no warning has counted yet
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._closes = self._is_failing = False
        self._said_s = -SAID_EVERY_S

    def put(self, line: Line, size: int) -> None:
        """`size`: about how many bytes of memory the line holds while it waits."""
        says_dropped = threading.current_thread() is self._thread  # in a log that is the sink
        with self._lock:
            is_full = len(self._waiting) >= self._most or self._num_bytes + size > MAX_WAITING_BYTES
            if is_full and not says_dropped:
                self._count_lost()
                return
            self._waiting.append((line, size))
            self._num_bytes += size
            if self._thread is None:
                self._begin()
            self._news.notify()

    def close(self, within_s: float = LAST_WRITES_S) -> None:
        """Write the waiting lines, for at most `within_s`."""
        with self._lock:
            thread, self._closes = self._thread, True
            self._news.notify()
        if thread is not None:
            thread.join(within_s)
            atexit.unregister(self.close)

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name="log-lines", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def _run(self) -> None:
        while taken := self._take():
            wrote = [self._write(line) for make, _ in taken if (line := self._made(make)) is not None]
            with self._lock:
                self._num_bytes -= sum(size for _, size in taken)
            if any(wrote) and not self._is_failing:
                self._say_dropped(SAID_EVERY_S)
        if not self._is_failing:
            self._say_dropped(0.0)

    def _write(self, line: bytes) -> bool:
        try:
            self._sink.write(line)
        except (OSError, ValueError) as error:  # ValueError: stdout is closed
            with self._lock:
                self._count_lost()
            if not self._is_failing:
                self._is_failing = True
                LOGGER.warning("%s cannot be written: %s; lines are dropped until it works", self._name, error)
            return False
        self._is_failing = False
        return True

    def _made(self, make: Line) -> bytes | None:
        try:
            return make()
        except Exception:  # noqa: BLE001  a bug in one line must not hold up the others
            LOGGER.exception("a line of %s cannot be made", self._name)
            return None

    def _take(self) -> list[tuple[Line, int]]:
        """Some lines; waits for the first. An empty list means that the writer is closed."""
        with self._lock:
            while not self._waiting and not self._closes:
                self._news.wait()
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_BATCH))]

    def _count_lost(self) -> None:
        self._num_dropped += 1
        self._lost(1)

    def _say_dropped(self, every_s: float) -> None:
        """Log how many lines were dropped, at most once in `every_s`."""
        with self._lock:
            now = self._clock()
            if not self._num_dropped or now - self._said_s < every_s:
                return
            dropped, self._num_dropped, self._said_s = self._num_dropped, 0, now
        LOGGER.warning("%d lines of %s were dropped: it could not be written, or not fast enough", dropped, self._name)
