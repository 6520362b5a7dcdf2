"""A worker process that its parent may kill at any time: what it does with itself first, and how both talk.

Frames on stdin and stdout: four bytes of length, then msgpack. Knows no job.
"""

import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

LENGTH = struct.Struct("<I")
NICENESS = 10  # of a server's workers: a tenth of a core where decoding wants all of them; at 19 it is 1.5 %, for ever
WAITED_FOR = 5  # niceness of a worker whose answer a client waits for: streams come first where all cores are busy
STRETCH = 10  # times its CPU time that a job of this niceness may take: on a busy machine it gets a tenth of a core
PR_SET_PDEATHSIG = 1
TO_THE_GROUP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)


def write_frame(stream: BinaryIO, data: bytes) -> None:
    """Ends this process if nobody reads the stream any more: its parent has closed it."""
    try:
        stream.write(LENGTH.pack(len(data)) + data)
        stream.flush()
    except BrokenPipeError:
        os._exit(0)  # an exit through the interpreter would flush the stream once more


def read_frame(stream: BinaryIO) -> bytes | None:
    """None at the end."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    data = stream.read(size)
    return data if len(data) == size else None


@contextmanager
def held_back() -> Iterator[None]:
    """A process that is started meanwhile gets no signal to the whole group before `leave_signals`.

    Until then Python would end it with a traceback, or the system with the signal: importing takes a while.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TO_THE_GROUP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_signals() -> None:
    """Ignore signals to the whole group: the process that started this one gets them too, and decides when it ends."""
    for number in TO_THE_GROUP:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TO_THE_GROUP)


def be_subordinate(niceness: int) -> None:
    """Below decoding in priority, and the first to go where memory runs out."""
    end_with_parent()
    leave_signals()
    os.nice(niceness)
    limit(resource.RLIMIT_CORE, 0)
    with suppress(OSError):  # no such file outside of Linux
        Path("/proc/self/oom_score_adj").write_text("1000")


def limit(kind: int, num_bytes: int) -> None:
    _, most = resource.getrlimit(kind)
    resource.setrlimit(kind, (num_bytes if most == resource.RLIM_INFINITY else min(num_bytes, most), most))


def mapped_bytes() -> int:
    """Bytes of this process's address space. Libraries may never touch most of them."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def limit_memory(num_bytes: int) -> None:
    """Beside what is mapped now: call it when the libraries are loaded."""
    limit(resource.RLIMIT_AS, mapped_bytes() + num_bytes)


def private_stdout() -> BinaryIO:
    """For frames. What a library prints to stdout, in whatever language, goes to stderr and not between them."""
    stdout = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return stdout


def end_with_parent() -> None:
    """Also while a library works: the end of stdin is noticed between two jobs only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def ending(returncode: int) -> str:
    """How a process ended, in words."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"signal {signal.Signals(-returncode).name}"
    except ValueError:
        return f"signal {-returncode}"
