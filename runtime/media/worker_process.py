"""A media worker as seen by who started it: begun when it is needed, killed at a timeout, and begun again.

Used by one thread at a time; `kill` and `close` are for any. What runs in the process is in runtime/media/worker.py.
"""

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from ramet.runtime.errors import ServerError
from ramet.runtime.log import LOGGER
from ramet.runtime.media.worker import Frame, Job, Outcome, Ready, Unusable
from ramet.runtime.media_options import MediaArgs
from ramet.runtime.subordinate import LENGTH, NICENESS, ending

START_TIMEOUT_S = 120.0  # of a process that loads the model's processor
EXIT_TIMEOUT_S = 5.0  # of one whose output has ended
PIPE_BYTES = 1 << 20  # what may wait in the pipe, where the system lets it be so large
# libraries that start threads of their own would map memory for each
ONE_THREAD = {
    name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX")
} | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}


class TimedOut(Exception):
    """The worker was killed."""


class WorkerEnded(Exception):
    """The worker's process ended: by itself, or somebody or the kernel killed it."""

    def __init__(self, returncode: int) -> None:
        self.returncode = returncode
        super().__init__(ending(returncode))

    @property
    def from_outside(self) -> bool:
        return self.returncode in (-signal.SIGKILL, -signal.SIGTERM)


class WorkerProcess:
    def __init__(self, folder: Path, limits: MediaArgs, name: str) -> None:
        options = [str(folder), msgspec.json.encode(limits).decode(), str(NICENESS)]
        self._command = [sys.executable, "-m", "ramet.runtime.media.worker", *options]
        self._timeout_s, self.name = limits.media_timeout_s, name
        self._starting = threading.Lock()
        self._lock = threading.Lock()  # of what follows
        self._process: subprocess.Popen[bytes] | None = None
        self._busy = self._closed = False

    def start(self) -> None:
        """Unless it runs; one who comes while another starts it waits. Raises ServerError, WorkerEnded and TimedOut."""
        with self._starting:
            self._start()

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None:
            self._end(self._process)
        began_s = time.monotonic()
        with self._lock:
            if self._closed:
                raise WorkerEnded(-signal.SIGKILL)
            pipe, environment = subprocess.PIPE, {**os.environ, **ONE_THREAD}
            process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, pipesize=PIPE_BYTES, env=environment)
            self._process = process
        frame = self._read(process, START_TIMEOUT_S)
        if isinstance(frame, Unusable):
            self._end(process)
            LOGGER.error("%s cannot prepare this model's media: %s", self.name, frame.fact)
            raise ServerError(f"This model's media cannot be prepared: {frame.fact}")
        assert isinstance(frame, Ready), f"{type(frame).__name__} came first"
        LOGGER.info("%s is process %d, begun in %.1f s", self.name, process.pid, time.monotonic() - began_s)

    def run(self, job: Job) -> Outcome:
        """After `start`. Raises TimedOut and WorkerEnded; the next `start` begins a new process then."""
        with self._lock:
            process, self._busy = self._process, True
        assert process is not None
        try:
            deadline = time.monotonic() + self._timeout_s
            self._write(process, msgspec.msgpack.encode(job), deadline)
            frame = self._read(process, max(deadline - time.monotonic(), 0))
        finally:
            self._busy = False
        assert not isinstance(frame, Ready | Unusable)
        return frame

    def interrupt(self) -> None:
        """From any thread: a job that runs ends with WorkerEnded. One that begins is let alone."""
        with self._lock:
            if self._process is not None and self._busy:
                self._process.kill()

    def close(self) -> None:
        """For good: the process has ended when this returns."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def _write(self, process: subprocess.Popen[bytes], data: bytes, deadline: float) -> None:
        """Never longer than the deadline: a process that does not read has stopped."""
        assert process.stdin is not None
        descriptor = process.stdin.fileno()
        os.set_blocking(descriptor, False)
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_WRITE)
            for part in (memoryview(LENGTH.pack(len(data))), memoryview(data)):
                while part:
                    if not selector.select(max(deadline - time.monotonic(), 0)):
                        self._end(process)
                        raise TimedOut
                    try:
                        part = part[os.write(descriptor, part) :]
                    except BlockingIOError:
                        continue
                    except BrokenPipeError:  # reading tells more of how it ended
                        return

    def _read(self, process: subprocess.Popen[bytes], timeout_s: float) -> Frame:
        """The next frame."""
        deadline = time.monotonic() + timeout_s
        (size,) = LENGTH.unpack(self._receive(process, LENGTH.size, deadline))
        frame: Frame = msgspec.msgpack.decode(self._receive(process, size, deadline), type=Frame)
        return frame

    def _receive(self, process: subprocess.Popen[bytes], size: int, deadline: float) -> bytes:
        assert process.stdout is not None
        data, descriptor = b"", process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while len(data) < size:
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    self._end(process)
                    raise TimedOut
                read = os.read(descriptor, size - len(data))
                if not read:
                    with suppress(subprocess.TimeoutExpired):  # killed now, it would not say how it ended
                        process.wait(EXIT_TIMEOUT_S)
                    self._end(process)
                    raise WorkerEnded(process.returncode)
                data += read
        return data

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._process = None
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
