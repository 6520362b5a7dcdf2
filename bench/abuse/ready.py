"""A process of its own for one window: it prepares, says so, waits for a line, works, and prints what it found.

It runs a module whose `main` calls `serve`. The question and the answer are structs, as JSON. What it prepares before
the window begins, and what it does within it, delays no task of the bench.
"""

import subprocess
import sys
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

Q = TypeVar("Q", bound=Struct)
A = TypeVar("A", bound=Struct)


class ServerReady(Generic[A]):
    """The process is prepared when this is made. `go` begins its work, `answer` waits for the end."""

    def __init__(self, module: str, asked: Struct, answer: type[A]) -> None:
        command = [sys.executable, "-P", "-m", module]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output, self._answer = self._process.stdin, self._process.stdout, answer
        self._write(msgspec.json.encode(asked))
        self._output.readline()

    def go(self) -> None:
        self._write(b"")

    def answer(self) -> A:
        with self._process, self._output:
            return msgspec.json.decode(self._output.read(), type=self._answer)

    def _write(self, line: bytes) -> None:
        self._input.write(line + b"\n")
        self._input.flush()


def serve(question: type[Q], prepare: Callable[[Q], Callable[[], Struct]]) -> None:
    """In the process: `prepare` returns the work that is begun at a sign."""
    work = prepare(msgspec.json.decode(sys.stdin.buffer.readline(), type=question))
    print("ready", flush=True)
    if sys.stdin.buffer.readline():  # else whoever started it is gone
        sys.stdout.buffer.write(msgspec.json.encode(work()))
