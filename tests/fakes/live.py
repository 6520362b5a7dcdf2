"""Not a fake: a real server, all its processes, on loopback. One for many tests, or one each for those that kill."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psutil
import requests

START_TIMEOUT_S = 240.0  # the first start of all compiles the CPU kernels
_HEAR = """
import os, signal, sys
for each in (signal.SIGHUP, signal.SIGINT):
    signal.signal(each, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""
HEARING = (sys.executable, "-c", _HEAR)  # before a server that ignores no signal, even if the tests do (nohup)
SERVER_PYTHON = os.environ.get("RAMET_PYTHON", sys.executable)  # another venv's: `make test-clients`


def running(module: str, parent: psutil.Process, *, recursive: bool = True) -> list[psutil.Process]:
    """Children of a process that run a module, without those that have just ended."""

    def runs(child: psutil.Process) -> bool:
        try:
            return module in child.cmdline()
        except psutil.NoSuchProcess:
            return False

    return [child for child in parent.children(recursive) if runs(child)]


class Live:
    """`ramet serve` with options as keyword arguments: Live(page_size=16). `before`: words before its command."""

    def __init__(self, before: Sequence[str] = (), **options: Any) -> None:
        flags = ["--port", "0"]
        for name, value in options.items():
            flag = "--" + name.replace("_", "-")
            flags += [flag] if value is True else [flag, str(value)]
        self.process = subprocess.Popen(
            [*before, SERVER_PYTHON, "-m", "ramet", "serve", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: deque[str] = deque(maxlen=2000)
        self._url: str | None = None
        self._started = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        if not self._started.wait(START_TIMEOUT_S) or self._url is None:
            self.kill()
            raise AssertionError("the server did not start:\n" + self.output())
        self.url: str = self._url

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            found = re.search(r"at (https?://\S+) \(ready", line)
            if found:
                self._url = found.group(1)
                self._started.set()
        self._started.set()

    def output(self) -> str:
        return "".join(self.lines)

    def children(self) -> dict[str, psutil.Process]:
        """Every child process by role."""
        roles: dict[str, psutil.Process] = {}
        parent = psutil.Process(self.process.pid)
        for child in running("ramet.runtime.processes.child", parent):  # parents before their children
            with suppress(psutil.NoSuchProcess):
                # one of its own is called so, too, until it runs a program
                roles.setdefault(child.cmdline()[-1], child)
        return roles

    def generate(self, **body: Any) -> requests.Response:
        return requests.post(self.url + "/generate", json=body, timeout=60)

    def state(self) -> dict[str, Any]:
        return requests.get(self.url + "/get_server_info", timeout=60).json()["internal_states"][0]

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)

    def __enter__(self) -> "Live":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
