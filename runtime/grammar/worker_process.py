"""A compile worker as seen by who started it: begun when it is needed, killed at a timeout, and begun again.

Used by one thread; `close` is for any. What runs in the process is in runtime/grammar/worker.py.
"""

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import msgspec

from ramet.runtime.grammar.base import Vocabulary
from ramet.runtime.grammar.worker import Frame, Job, Outcome, Ready
from ramet.runtime.subordinate import LENGTH, ending

START_TIMEOUT_S = 120.0  # of a process that loads its tokenizer, and of one that loads a library
EXIT_TIMEOUT_S = 5.0  # of one whose output has ended
PIPE_BYTES = 1 << 20  # what may wait in the pipe, where the system lets it be so large


class TimedOut(Exception):
    """The worker was killed."""


class WorkerEnded(Exception):
    """The worker's process ended, or never was there."""

    def __init__(self, returncode: int, started: bool) -> None:
        self.returncode, self.started = returncode, started
        super().__init__(ending(returncode))

    @property
    def from_outside(self) -> bool:
        """No constraint did it: somebody, or the kernel, killed the process, or it could not be started."""
        return not self.started or self.returncode in (-signal.SIGKILL, -signal.SIGTERM)


class WorkerProcess:
    def __init__(self, vocabulary: Vocabulary, niceness: int) -> None:
        eos = ",".join(map(str, sorted(vocabulary.eos_ids)))
        module = "ramet.runtime.grammar.worker"
        options = [str(vocabulary.folder), str(vocabulary.size), eos, str(niceness)]
        self._command = [sys.executable, "-m", module, *options]
        self._lock = threading.Lock()  # of `_process` and `_closed`
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._libraries = set[str]()  # that the process has loaded

    def run(self, job: Job, timeout_s: float) -> Outcome:
        """Raises TimedOut and WorkerEnded; the next call starts a new process then."""
        process = self._process or self._start()
        data = msgspec.msgpack.encode(job)
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # reading tells more of how it ended
            process.stdin.write(LENGTH.pack(len(data)) + data)
            process.stdin.flush()
        known = job.constraint.backend in self._libraries
        frame = self._read(process, timeout_s if known else START_TIMEOUT_S, started=True)
        if isinstance(frame, Ready):
            self._libraries.add(job.constraint.backend)
            frame = self._read(process, timeout_s, started=True)
        assert not isinstance(frame, Ready)
        return frame

    def close(self) -> None:
        """For good, from any thread: the process has ended when this returns, and what runs raises WorkerEnded."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise WorkerEnded(-signal.SIGKILL, started=False)
            pipe = subprocess.PIPE
            process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, pipesize=PIPE_BYTES)
            self._process = process
        self._read(process, START_TIMEOUT_S, started=False)
        return process

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._process = None
            self._libraries.clear()
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):  # of what it never read
                stream.close()

    def _read(self, process: subprocess.Popen[bytes], timeout_s: float, started: bool) -> Frame:
        """The next frame."""
        deadline = time.monotonic() + timeout_s
        (size,) = LENGTH.unpack(self._receive(process, LENGTH.size, deadline, started))
        frame: Frame = msgspec.msgpack.decode(self._receive(process, size, deadline, started), type=Frame)
        return frame

    def _receive(self, process: subprocess.Popen[bytes], size: int, deadline: float, started: bool) -> bytearray:
        """Read where it stays: copies of it would keep the scheduler waiting."""
        assert process.stdout is not None
        data, descriptor, received = bytearray(size), process.stdout.fileno(), 0
        with selectors.DefaultSelector() as selector, memoryview(data) as view:
            selector.register(descriptor, selectors.EVENT_READ)
            while received < size:
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    self._kill(process)
                    raise TimedOut
                read = os.readv(descriptor, [view[received:]])
                if not read:
                    with suppress(subprocess.TimeoutExpired):  # killed now, it would not say how it ended
                        process.wait(EXIT_TIMEOUT_S)
                    self._kill(process)
                    raise WorkerEnded(process.returncode, started)
                received += read
        return data
