"""Writes what all processes of a server print to the parent's stdout and stderr, even if nobody reads these.

Decides that no process waits for a reader: each child writes into two pipes that threads here always empty, and a
thread for each of the parent's own two outputs writes what they read. A full pipe or a full disk costs lines, which
are counted (log_lines.py). Dumps of stacks, and what libraries and workers of a child print, go the same way.
"""

import os
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import IO

from ramet.runtime.workers.log_lines import LAST_WRITES_S, Descriptor, LineWriter
from ramet.runtime.workers.subordinate import held_back

MAX_LINE = 1 << 16  # bytes: a longer line is split
MAX_WAITING = 1 << 12  # lines of an output
LAST_LINES_S = 1.0  # to read the pipes of children that have ended
STDOUT, STDERR = 1, 2
NAMES = {STDOUT: "stdout", STDERR: "stderr"}


class Outputs:
    """`dropped`: the number of lines that could not be written so far, by output."""

    def __init__(self) -> None:
        self.dropped = dict.fromkeys(NAMES.values(), 0)
        self._changed: Callable[[], None] = lambda: None
        self._writers = {}
        for number, name in NAMES.items():
            _provide(number)
            self._writers[number] = LineWriter(Descriptor(number), name, partial(self._count, name), MAX_WAITING)
        self._readers: list[threading.Thread] = []

    def listen(self, changed: Callable[[], None]) -> None:
        """Set a function that is called, on any thread, when a line was dropped. It must not block."""
        self._changed = changed

    def _count(self, name: str, num: int) -> None:
        self.dropped[name] += num
        self._changed()

    def start(self, command: list[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
        """Start a child whose lines appear on the parent's outputs."""
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        with held_back():
            child = subprocess.Popen(command, env=environment, bufsize=0, stdin=null, stdout=pipe, stderr=pipe)
        for number, opened in ((STDOUT, child.stdout), (STDERR, child.stderr)):
            assert opened is not None
            reader = threading.Thread(target=read_lines, args=(opened, partial(self._put, number)), daemon=True)
            reader.start()
            self._readers.append(reader)
        return child

    def print(self, text: str) -> None:
        """Print whole lines on stdout."""
        for line in text.split("\n"):
            self._put(STDOUT, line.encode(errors="replace"))

    def write(self, text: str) -> None:
        """Write a line of the parent's log, with its newline, to stderr."""
        self._put(STDERR, text.removesuffix("\n").encode(errors="backslashreplace"))

    def flush(self) -> None:
        """Does nothing, because nothing is buffered here. The log's handler calls it."""

    def close(self) -> None:
        """Write the last lines of the children and the parent, within LAST_LINES_S and LAST_WRITES_S."""
        ends_s = time.monotonic() + LAST_LINES_S
        for reader in self._readers:
            reader.join(max(0.0, ends_s - time.monotonic()))
        ends_s = time.monotonic() + LAST_WRITES_S
        for writer in self._writers.values():
            writer.close(max(0.0, ends_s - time.monotonic()))

    def _put(self, number: int, line: bytes) -> None:
        self._writers[number].put(lambda: line, len(line))


def read_lines(pipe: IO[bytes], put: Callable[[bytes], None]) -> None:
    """Call `put` for each line until the pipe ends. Text without a newline at the end counts as a line."""
    rest = b""
    while data := os.read(pipe.fileno(), MAX_LINE):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            put(line)
        if len(rest) > MAX_LINE:
            put(rest)
            rest = b""
    if rest:
        put(rest)


def _provide(number: int) -> None:
    """Open /dev/null as this descriptor if it is closed: the next socket would get its number, and lines with it."""
    try:
        os.fstat(number)
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        if null != number:
            os.dup2(null, number)
            os.close(null)
