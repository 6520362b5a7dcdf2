"""A worker process as its parent sees it: started when it is needed, killed at a timeout, and started again.

Decides how a job goes out, how its frames come back, and whether a worker's end is the job's fault. Knows no job. What
the process does with itself, and the form of a frame, is in runtime/subordinate.py.
"""

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec

from ramet.runtime.subordinate import LENGTH, ending, held_back

F = TypeVar("F")
START_TIMEOUT_S = 120.0  # until the first frame: a process loads its libraries, and perhaps a tokenizer
EXIT_TIMEOUT_S = 5.0  # of a process whose output has ended
PIPE_BYTES = 1 << 20  # what may wait in the pipe, where the system lets it be so large
TRIES = 2  # of a job whose worker was killed from outside
# libraries that start threads of their own would map memory for each
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX")}


class TimedOut(Exception):
    """The worker was killed."""


class WorkerEnded(Exception):
    """The worker's process ended: by itself, or somebody or the kernel killed it, or it could not be started."""

    def __init__(self, returncode: int, started: bool) -> None:
        self.returncode, self.started = returncode, started
        super().__init__(ending(returncode))

    @property
    def from_outside(self) -> bool:
        """No job did it: somebody, or the kernel, killed the process, or it could not be started, or ended in order."""
        return not self.started or self.returncode in (-signal.SIGKILL, -signal.SIGTERM, 0)


class WorkerProcess(Generic[F]):
    """Frames are of type F. `run` and `read` are for one thread at a time, everything else is for any thread."""

    def __init__(
        self, module: str, options: Sequence[str], frame: Any, environment: Mapping[str, str] = ONE_THREAD
    ) -> None:
        """`frame`: F as msgspec decodes it. `environment`: what the process has beyond its parent's."""
        self._command = [sys.executable, "-m", module, *options]
        self._environment = environment
        self._decoder: msgspec.msgpack.Decoder[F] = msgspec.msgpack.Decoder(frame)
        self._starting = threading.Lock()
        self._lock = threading.Lock()  # of what follows
        self._process: subprocess.Popen[bytes] | None = None
        self._busy = self._closed = False

    @property
    def pid(self) -> int | None:
        """None while there is no process."""
        process = self._process
        return None if process is None else process.pid

    def start(self) -> F | None:
        """The first frame of a new process; None where one runs. A second caller waits for the first one's process.

        Raises WorkerEnded and TimedOut.
        """
        with self._starting:
            if self._process is not None and self._process.poll() is None:
                return None
            if self._process is not None:
                self.end()
            with self._lock:
                if self._closed:
                    raise WorkerEnded(-signal.SIGKILL, started=False)
                pipe, environment = subprocess.PIPE, {**os.environ, **self._environment}
                with held_back():
                    process = subprocess.Popen(
                        self._command, stdin=pipe, stdout=pipe, pipesize=PIPE_BYTES, env=environment
                    )
                self._process = process
            return self._next(process, START_TIMEOUT_S, started=False)

    def tell(self, job: msgspec.Struct, timeout_s: float) -> None:
        """Something that no frame answers, after `start`. Raises TimedOut."""
        process = self._process
        if process is not None:
            self._write(process, msgspec.msgpack.encode(job), time.monotonic() + timeout_s)

    def run(self, job: msgspec.Struct, timeout_s: float) -> F:
        """The first frame that answers `job`, after `start`. Raises TimedOut and WorkerEnded; the next `start` starts a
        new process then.
        """
        with self._lock:
            process, self._busy = self._process, True
        try:
            if process is None:  # it was closed
                raise WorkerEnded(-signal.SIGKILL, started=False)
            deadline_s = time.monotonic() + timeout_s
            self._write(process, msgspec.msgpack.encode(job), deadline_s)
            return self._next(process, max(deadline_s - time.monotonic(), 0))
        finally:
            self._busy = False

    def read(self, timeout_s: float) -> F:
        """The next frame of the same job. Raises TimedOut and WorkerEnded."""
        process = self._process
        if process is None:
            raise WorkerEnded(-signal.SIGKILL, started=False)
        return self._next(process, timeout_s)

    def interrupt(self) -> None:
        """End the process if a job runs in it: that ends with WorkerEnded."""
        with self._lock:
            if self._process is not None and self._busy:
                self._process.kill()

    def end(self) -> None:
        """End the process; the next `start` starts another. For the thread that runs jobs."""
        with self._lock:
            process, self._process = self._process, None
            if process is None:
                return
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):  # what it never read
                stream.close()

    def close(self) -> None:
        """For good: the process has ended when this returns, and a job that runs ends with WorkerEnded."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def _write(self, process: subprocess.Popen[bytes], data: bytes, deadline_s: float) -> None:
        """Never beyond the deadline: a process that does not read has stopped."""
        assert process.stdin is not None
        descriptor = process.stdin.fileno()
        os.set_blocking(descriptor, False)
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_WRITE)
            for part in (memoryview(LENGTH.pack(len(data))), memoryview(data)):
                while part:
                    if not selector.select(max(deadline_s - time.monotonic(), 0)):
                        self.end()
                        raise TimedOut
                    try:
                        part = part[os.write(descriptor, part) :]
                    except BlockingIOError:
                        continue
                    except BrokenPipeError:  # reading tells more about how it ended
                        return

    def _next(self, process: subprocess.Popen[bytes], timeout_s: float, started: bool = True) -> F:
        deadline_s = time.monotonic() + timeout_s
        (size,) = LENGTH.unpack(self._receive(process, LENGTH.size, deadline_s, started))
        return self._decoder.decode(self._receive(process, size, deadline_s, started))

    def _receive(self, process: subprocess.Popen[bytes], size: int, deadline_s: float, started: bool) -> bytearray:
        """Read into its place: copying it would hold up the scheduler."""
        assert process.stdout is not None
        data, descriptor, received = bytearray(size), process.stdout.fileno(), 0
        with selectors.DefaultSelector() as selector, memoryview(data) as view:
            selector.register(descriptor, selectors.EVENT_READ)
            while received < size:
                if not selector.select(max(deadline_s - time.monotonic(), 0)):
                    self.end()
                    raise TimedOut
                read = os.readv(descriptor, [view[received:]])
                if not read:
                    with suppress(subprocess.TimeoutExpired):  # killed now, it would not say how it ended
                        process.wait(EXIT_TIMEOUT_S)
                    self.end()
                    raise WorkerEnded(process.returncode, started)
                received += read
        return data
