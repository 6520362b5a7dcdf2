"""Processes that end with the one that started them, however it ends, and a folder that goes with them.

A compiler starts others, which no signal at its parent's death reaches. So all of them are in one process group with a
watch, which reads from a pipe that only the starting process can write to: when that is closed, it kills the group.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

WATCH = """
import os, shutil, signal, sys
sys.stdin.read()
group = os.getpgrp()
if os.fork() == 0:
    os.setpgid(0, 0)
    os.killpg(group, signal.SIGKILL)
    shutil.rmtree(sys.argv[1], ignore_errors=True)
"""


class ProcessGroup:
    """As a context: what still runs at its end is killed. `folder` has the processes' temporary files."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-I", "-S", "-c", WATCH, str(folder)]
        self._environment = {**os.environ, "TMPDIR": str(folder)}
        self._open = ExitStack()
        self._watch = self._open.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0))

    def start(self, command: Sequence[str]) -> "subprocess.Popen[str]":
        """What it prints is in its stdout."""
        started = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
            process_group=self._watch.pid,
        )
        return self._open.enter_context(started)

    def kill(self) -> None:
        """End all processes now; what waits for their output gets its end."""
        os.killpg(self._watch.pid, signal.SIGKILL)

    def __enter__(self) -> "ProcessGroup":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._open.close()
