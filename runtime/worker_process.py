"""The parent's side of a worker process, which is started when needed, killed at a timeout, and started again.

Decides how a job is sent, how its frames are received, and whether a job caused the worker's end. Knows no job. The
process's own set-up and the format of a frame are in runtime/subordinate.py.
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
EXIT_TIMEOUT_S = 5.0  # for the exit of a process whose output has ended
PIPE_BYTES = 1 << 20  # capacity of the pipe, if the system allows it
TRIES = 2  # attempts at a job whose worker was killed from outside
# otherwise libraries would start threads and map memory for each
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX")}


class TimedOut(Exception):
    """The worker was killed."""


class WorkerEnded(Exception):
    """The worker's process exited, was killed by somebody or the kernel, or could not be started."""

    def __init__(self, returncode: int, started: bool) -> None:
        self.returncode, self.started = returncode, started
        super().__init__(ending(returncode))

    @property
    def from_outside(self) -> bool:
        """Whether no job caused it: the process was killed from outside, never started, or exited normally."""
        return not self.started or self.returncode in (-signal.SIGKILL, -signal.SIGTERM, 0)


class WorkerProcess(Generic[F]):
    """A process whose frames are of type F. Only one thread at a time may use `run` and `read`."""

    def __init__(
        self, module: str, options: Sequence[str], frame: Any, environment: Mapping[str, str] = ONE_THREAD
    ) -> None:
        """`frame`: the type F for msgspec. `environment`: variables that the process has beyond its parent's."""
        self._command = [sys.executable, "-m", module, *options]
        self._environment = environment
        self._decoder: msgspec.msgpack.Decoder[F] = msgspec.msgpack.Decoder(frame)
        self._starting = threading.Lock()
        self._lock = threading.Lock()  # guards the fields below
        self._process: subprocess.Popen[bytes] | None = None
        self._busy = self._closed = False

    @property
    def pid(self) -> int | None:
        """The process id, or None while no process exists."""
        process = self._process
        return None if process is None else process.pid

    def start(self) -> F | None:
        """Start a process and return its first frame, or None if one is running. A second caller waits for the first.

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
        """Send a job that has no answer, after `start`. Raises TimedOut."""
        process = self._process
        if process is not None:
            self._write(process, msgspec.msgpack.encode(job), time.monotonic() + timeout_s)

    def run(self, job: msgspec.Struct, timeout_s: float) -> F:
        """Run a job, after `start`, and return the first frame of its answer.

        Raises TimedOut and WorkerEnded; then the next `start` starts a new process.
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
        """End the process if a job runs in it. The job ends with WorkerEnded."""
        with self._lock:
            if self._process is not None and self._busy:
                self._process.kill()

    def end(self) -> None:
        """End the process; the next `start` starts another. Only the thread that runs jobs may call it."""
        with self._lock:
            process, self._process = self._process, None
            if process is None:
                return
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):  # data that it never read
                stream.close()

    def close(self) -> None:
        """End the process for good before returning. A running job ends with WorkerEnded."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def _write(self, process: subprocess.Popen[bytes], data: bytes, deadline_s: float) -> None:
        """Write until the deadline at most: a process that does not read is stuck."""
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
                    except BrokenPipeError:  # reading will show how the process ended
                        return

    def _next(self, process: subprocess.Popen[bytes], timeout_s: float, started: bool = True) -> F:
        deadline_s = time.monotonic() + timeout_s
        (size,) = LENGTH.unpack(self._receive(process, LENGTH.size, deadline_s, started))
        return self._decoder.decode(self._receive(process, size, deadline_s, started))

    def _receive(self, process: subprocess.Popen[bytes], size: int, deadline_s: float, started: bool) -> bytearray:
        """Read `size` bytes into one buffer: a copy would hold up the scheduler."""
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
                    with suppress(subprocess.TimeoutExpired):  # killing it now would hide how it ended
                        process.wait(EXIT_TIMEOUT_S)
                    self.end()
                    raise WorkerEnded(process.returncode, started)
                received += read
        return data
