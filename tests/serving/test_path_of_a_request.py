"""One plain /generate request goes through the processes in their order, and runs no file of an optional feature."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import Live

ROOT = Path(__file__).resolve().parents[2]
TRACER = ROOT / "tests" / "fakes" / "tracer"
FEATURES = "runtime/scheduler/features/"
TIMEOUT_S = 60.0
QUIET_S = 0.1
ORDER = [  # the processes that a request passes: a file that runs in each of them and in no other
    "runtime/server/native/generate.py",
    "runtime/text/encoder.py",
    "runtime/scheduler/loop.py",
    "runtime/text/detokenizer_process.py",
]
MANY = 10  # calls while nobody asks: a process that runs more files of its own accord than this is not quiet


@pytest.fixture
def inbox(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where every process of a server that starts now sends its record."""
    address = tmp_path_factory.mktemp("trace") / "in"
    monkeypatch.setenv("TRACE_SOCKET", str(address))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(TRACER), os.environ.get("PYTHONPATH")])))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(address))
        receiver.settimeout(TIMEOUT_S)
        yield receiver


def records(live: Live, number: signal.Signals, inbox: socket.socket) -> list[list[tuple[float, str]]]:
    """Send a signal to every process of the server; what each of them reports: times and files of calls."""
    children = live.children().values()
    for child in children:
        child.send_signal(number)
    return [json.loads(inbox.recv(1 << 20)) for _ in children]


def begin_when_quiet(live: Live, inbox: socket.socket) -> None:
    """Begin the records when every process waits: who has answered may have yet to go back to its waiting."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        records(live, signal.SIGURG, inbox)
        time.sleep(QUIET_S)
        ran = {name for record in records(live, signal.SIGWINCH, inbox) for _, name in record}
        if len(ran) <= MANY and not ran & set(ORDER[:2]):
            break
        assert time.monotonic() < deadline, ran
    records(live, signal.SIGURG, inbox)


def files_of(live: Live, inbox: socket.socket) -> list[list[str]]:
    """The files that run while one request is served, by process, in the order of their first call."""
    body = {"text": "The capital of France is", "sampling_params": {"temperature": 0, "max_new_tokens": 4}}
    live.generate(**{**body, "text": "Some other text"})  # what only a first request loads
    live.state()  # the scheduler is idle and has said so
    begin_when_quiet(live, inbox)
    assert len(live.generate(**body).json()["output_ids"]) > 0
    per_process = records(live, signal.SIGWINCH, inbox)
    first = [dict.fromkeys(name for _, name in sorted(record)) for record in per_process]
    begun = {name: min(at for at, each in record if each == name) for record in per_process for _, name in record}
    own = [next((name for name in ORDER if name in files), "") for files in first]
    return [list(first[i]) for i in sorted(range(len(own)), key=lambda i: begun.get(own[i], float("inf")))]


def test_a_plain_request_passes_the_processes_in_order_and_runs_no_feature(inbox: socket.socket) -> None:
    with Live(device="cpu", log_level="warning", max_total_tokens=20000) as live:
        ran = files_of(live, inbox)
    assert [name for files in ran for name in ORDER if name in files] == ORDER
    assert not [name for files in ran for name in files if name.startswith(FEATURES)]
