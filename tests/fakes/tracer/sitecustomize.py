"""Not a fake: records which files of the repository run in a process.

Python imports it at the start of every process whose PYTHONPATH has this folder. SIGURG begins a record, SIGWINCH ends
it; both are answered on the socket TRACE_SOCKET.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

_ROOT = str(Path(__file__).resolve().parents[3]) + os.sep
_first_call: dict[str, float] = {}  # file as Python spells it -> monotonic seconds


def _note(frame: Any, event: str, _: object) -> None:
    if event == "call":
        name = frame.f_code.co_filename
        if name not in _first_call and name[0] != "<":
            _first_call[name] = time.monotonic()


def _begin(*_: object) -> None:
    _first_call.clear()
    _report([])
    sys.setprofile(_note)


def _end(*_: object) -> None:
    sys.setprofile(None)
    real = {os.path.realpath(name): at for name, at in reversed(_first_call.items())}  # the first of several spellings
    ours = sorted((at, name.removeprefix(_ROOT)) for name, at in real.items() if name.startswith(_ROOT))
    _report([(at, name) for at, name in ours if not name.startswith((".venv", "tests/"))])


def _report(files: list[tuple[float, str]]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(json.dumps(files).encode(), os.environ["TRACE_SOCKET"])


if "TRACE_SOCKET" in os.environ:
    signal.signal(signal.SIGURG, _begin)
    signal.signal(signal.SIGWINCH, _end)
