"""A server for one chat: started on a free port of the loopback, with a key of its own, ended with the chat."""

import ctypes
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ramet.runtime.errors import RametError

_ADDRESS = re.compile(r" at (https?://\S+) \(ready in")
_PR_SET_PDEATHSIG = 1
END_WITHIN_S = 10.0


class NotStarted(RametError):
    """Its own lines on stderr say why."""


@contextmanager
def own_server(options: Sequence[str], key: str) -> Iterator[tuple[str, str]]:
    """`ramet serve` with these options; its address and its key. What it logs goes to stderr."""
    key = key or secrets.token_urlsafe(24)
    command = [sys.executable, "-m", "ramet", "serve", "--host", "127.0.0.1", "--port", "0", "--log-level", "warning"]
    process = subprocess.Popen(
        [*command, *options],
        env={name: value for name, value in os.environ.items() if name != "RAMET_API_KEY_FILE"}
        | {"RAMET_API_KEY": key},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C stops a reply, not the server
        preexec_fn=_die_with_the_parent,
    )
    try:
        yield _address(process), key
    finally:
        _end(process)


def _address(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := _ADDRESS.search(line):
            return found[1]
    raise NotStarted(f"the model's server ended with code {process.wait()} before it was ready")


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _die_with_the_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
