"""The parent's side of a worker process, which is started when needed, killed at a timeout, and started again.

Decides how a job is sent, how its frames are received, and whether a job caused the worker's end. Knows no job. The
process's own set-up and the format of a frame are in runtime/workers/subordinate.py.
"""

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec

from ramet.runtime.exact_json import Bytes
from ramet.runtime.workers.subordinate import LENGTH, ending, held_back

F = TypeVar("F")
T = TypeVar("T")
START_TIMEOUT_S = 120.0  # until the first frame: a process loads its libraries, and perhaps a tokenizer
EXIT_TIMEOUT_S = 5.0  # for the exit of a process whose output has ended
PIPE_BYTES = 1 << 20  # capacity of the pipe, if the system allows it
MIN_WAIT_S = 0.01  # between two readings of its CPU time
TRIES = 2  # attempts at a job whose worker was killed from outside
# otherwise libraries would start threads and map memory for each
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX")}


class TimedOut(Exception):
    """The worker was killed. `starved`: it had computed for less than the timeout: the machine was busy, or it hung."""

    def __init__(self, starved: bool) -> None:
        self.starved = starved
        super().__init__()


class WorkerEnded(Exception):
    """The worker's process exited, was killed by somebody or the kernel, or could not be started."""

    def __init__(self, returncode: int, started: bool) -> None:
        self.returncode, self.started = returncode, started
        super().__init__(ending(returncode))

    @property
    def from_outside(self) -> bool:
        """Whether no job caused it: the process was killed from outside, never started, or exited normally."""
        return not self.started or self.returncode in (-signal.SIGKILL, -signal.SIGTERM, 0)


def tried(run: Callable[[], T], is_over: Callable[[], bool], note: Callable[[WorkerEnded], None]) -> T:
    """What a job gives. It is run again, up to TRIES times in all, if its worker was killed from outside: another job
    may have taken the machine's memory. `is_over`: nobody wants it any more. Raises what `run` raises.
    """
    for _ in range(TRIES - 1):
        try:
            return run()
        except WorkerEnded as error:
            if not error.from_outside or is_over():
                raise
            note(error)
    return run()


class _Deadline:
    """The time that is left to a job, which begins now.

    After `timeout_s` the job may continue until its process has computed for as long, because the machine may be busy
    with others, but for `max_s` at most.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", timeout_s: float, max_s: float = 0.0) -> None:
        self._pid, self._timeout_s, self._max_s = process.pid, timeout_s, max_s
        self._begun_s, self._computed_before_s = time.monotonic(), _computed_s(process.pid)

    def left_s(self) -> float:
        """Seconds to wait before asking again. 0: the time is over."""
        spent_s = time.monotonic() - self._begun_s
        if spent_s < self._timeout_s:
            return self._timeout_s - spent_s
        left_s = min(self._not_computed_s(), self._max_s - spent_s)
        return max(left_s, MIN_WAIT_S) if left_s > 0 else 0.0

    def error(self) -> TimedOut:
        return TimedOut(starved=self._not_computed_s() > 0)

    def _not_computed_s(self) -> float:
        return self._timeout_s - (_computed_s(self._pid) - self._computed_before_s)


def _computed_s(pid: int) -> float:
    """CPU seconds of a process; the clock's seconds where the system does not say."""
    with suppress(OSError):
        if sys.platform == "linux":
            return time.clock_gettime(~pid << 3 | 2)  # what clock_getcpuclockid makes of a pid, which Python lacks
    return time.monotonic()


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
            return self._next(process, _Deadline(process, START_TIMEOUT_S), started=False)

    def tell(self, job: msgspec.Struct, timeout_s: float) -> None:
        """Send a job that has no answer, after `start`. Raises TimedOut."""
        process = self._process
        if process is not None:
            self._write(process, [msgspec.msgpack.encode(job)], _Deadline(process, timeout_s))

    def run(self, job: msgspec.Struct, timeout_s: float, max_s: float = 0.0, attached: Bytes | None = None) -> F:
        """Run a job, after `start`, and return the first frame of its answer.

        `attached`: sent behind it, as a frame of its own. `max_s`: how long the job may take if the machine is so busy
        that its process computes for less than `timeout_s`. Raises TimedOut and WorkerEnded; then the next `start`
        starts a new process.
        """
        with self._lock:
            process, self._busy = self._process, True
        try:
            if process is None:  # it was closed
                raise WorkerEnded(-signal.SIGKILL, started=False)
            deadline = _Deadline(process, timeout_s, max_s)
            frames: list[Bytes] = [msgspec.msgpack.encode(job), *([] if attached is None else [attached])]
            self._write(process, frames, deadline)
            return self._next(process, deadline)
        finally:
            self._busy = False

    def read(self, timeout_s: float, max_s: float = 0.0) -> F:
        """The next frame of the same job, with times as those of `run`. Raises TimedOut and WorkerEnded."""
        process = self._process
        if process is None:
            raise WorkerEnded(-signal.SIGKILL, started=False)
        return self._next(process, _Deadline(process, timeout_s, max_s))

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

    def _write(self, process: subprocess.Popen[bytes], frames: Sequence[Bytes], deadline: _Deadline) -> None:
        """Write until the deadline at most: a process that does not read is stuck."""
        left = [memoryview(part) for data in frames for part in (LENGTH.pack(len(data)), data) if part]
        assert process.stdin is not None
        descriptor = process.stdin.fileno()
        os.set_blocking(descriptor, False)
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_WRITE)
            while left:
                if not self._ready(selector, deadline):
                    continue
                try:
                    left = _after(os.writev(descriptor, left), left)
                except BlockingIOError:
                    continue
                except BrokenPipeError:  # reading will show how the process ended
                    return

    def _ready(self, selector: selectors.BaseSelector, deadline: _Deadline) -> bool:
        """Wait for a while. Raises TimedOut, after ending the process, if the time is over."""
        left_s = deadline.left_s()
        if selector.select(left_s):
            return True
        if left_s == 0.0:
            error = deadline.error()
            self.end()
            raise error
        return False

    def _next(self, process: subprocess.Popen[bytes], deadline: _Deadline, started: bool = True) -> F:
        (size,) = LENGTH.unpack(self._receive(process, LENGTH.size, deadline, started))
        return self._decoder.decode(self._receive(process, size, deadline, started))

    def _receive(self, process: subprocess.Popen[bytes], size: int, deadline: _Deadline, started: bool) -> bytearray:
        """Read `size` bytes into one buffer: a copy would hold up the scheduler."""
        assert process.stdout is not None
        data, descriptor, received = bytearray(size), process.stdout.fileno(), 0
        with selectors.DefaultSelector() as selector, memoryview(data) as view:
            selector.register(descriptor, selectors.EVENT_READ)
            while received < size:
                if not self._ready(selector, deadline):
                    continue
                read = os.readv(descriptor, [view[received:]])
                if not read:
                    with suppress(subprocess.TimeoutExpired):  # killing it now would hide how it ended
                        process.wait(EXIT_TIMEOUT_S)
                    self.end()
                    raise WorkerEnded(process.returncode, started)
                received += read
        return data


def _after(num_written: int, parts: list[memoryview]) -> list[memoryview]:
    """What is left of these parts."""
    for i, part in enumerate(parts):
        if num_written < len(part):
            return [part[num_written:], *parts[i + 1 :]]
        num_written -= len(part)
    return []
