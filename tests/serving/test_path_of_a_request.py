"""The files that one /generate request runs through are those that docs/architecture.md lists, in that order."""

import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import Live

ROOT = Path(__file__).resolve().parents[2]
TRACER = ROOT / "tests" / "fakes" / "tracer"
TIMEOUT_S = 60.0
QUIET_S = 0.1


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


def begin_when_quiet(live: Live, inbox: socket.socket, housekeeping: set[str]) -> None:
    """Begin the records when every process waits: who has answered may have yet to go back to its waiting."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        records(live, signal.SIGURG, inbox)
        time.sleep(QUIET_S)
        ran = {name for record in records(live, signal.SIGWINCH, inbox) for _, name in record}
        if ran <= housekeeping:
            break
        assert time.monotonic() < deadline, ran
    records(live, signal.SIGURG, inbox)


def files_of(live: Live, inbox: socket.socket, housekeeping: set[str]) -> list[list[str]]:
    """The files that run while one request is served, each in the process that calls it first.

    Files are in the order of their first call, and processes in the order in which the request reaches them.
    """
    body = {"text": "The capital of France is", "sampling_params": {"temperature": 0, "max_new_tokens": 4}}
    live.generate(**{**body, "text": "Some other text"})  # what only a first request loads
    live.state()  # the scheduler is idle and has said so
    begin_when_quiet(live, inbox, housekeeping)
    assert len(live.generate(**body).json()["output_ids"]) > 0
    calls = sorted(
        (at, name, process)
        for process, record in enumerate(records(live, signal.SIGWINCH, inbox))
        for at, name in record
    )
    first = dict[str, int]()
    for _, name, process in calls:
        first.setdefault(name, process)
    return [[name for name in first if first[name] == process] for process in dict.fromkeys(first.values())]


def listed() -> tuple[list[str], set[str]]:
    """(the numbered list of docs/architecture.md, the files of housekeeping that it names below the list)"""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.split("## The path of a `/generate` request\n")[1].split("\n## ")[0]
    path = re.findall(r"^\d+\. `(.+?)`", section, re.MULTILINE)
    (line,) = re.findall(r"^Housekeeping: (.+)$", section, re.MULTILINE)
    return path, set(re.findall(r"`(.+?)`", line))


def test_a_request_runs_through_the_listed_files_in_order(inbox: socket.socket) -> None:
    """The order is that of each process: two processes that run at once have no order between them."""
    path, housekeeping = listed()
    with Live(device="cpu", log_level="warning", max_total_tokens=20000) as live:
        ran = [[name for name in files if name not in housekeeping] for files in files_of(live, inbox, housekeeping)]
    assert sorted(name for files in ran for name in files) == sorted(path)
    for files in ran:
        assert files == [name for name in path if name in files]
    starts = [path.index(files[0]) for files in ran if files]
    assert starts == sorted(starts)


def test_no_file_of_the_list_is_housekeeping() -> None:
    path, housekeeping = listed()
    assert not housekeeping & set(path)
