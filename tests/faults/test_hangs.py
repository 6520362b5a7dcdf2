"""Processes that hang: SIGTERM ends the server all the same, with no process and no folder left."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from live import Live
from samples import slow
from test_deaths import SCRIPTED, open_stream, rest_of

FAKES = Path(__file__).parents[1] / "fakes"
ROLES = ("server", "scheduler", "tokenizer-0", "detokenizer")


def stop(process: psutil.Process) -> None:
    process.suspend()


def spin(process: psutil.Process) -> None:
    """A loop in C that holds the interpreter's lock (tests/fakes/hang/sitecustomize.py)."""
    process.send_signal(signal.SIGALRM)


HANGS: dict[str, Callable[[psutil.Process], None]] = {"stopped": stop, "spinning": spin}
# the server is what the parent waits for: with another process hung it ends by itself
CASES = [
    ("server", "stopped"), slow(("server", "spinning")), ("scheduler", "stopped"), slow(("scheduler", "spinning")),
    slow(("tokenizer-0", "stopped")), slow(("tokenizer-0", "spinning")),
    slow(("detokenizer", "stopped")), slow(("detokenizer", "spinning")),
]  # fmt: skip


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, short_tmp: Path) -> Path:
    """TMPDIR of the servers of a test."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAKES / "hang"), os.environ.get("PYTHONPATH", "")]))
    return short_tmp


def folders(place: Path) -> list[str]:
    return [path.name for path in place.iterdir() if path.name.startswith("ramet-")]


@pytest.mark.parametrize(("role", "kind"), CASES)
def test_sigterm_ends_a_server_of_which_a_process_hangs(place: Path, role: str, kind: str) -> None:
    with Live(**SCRIPTED, drain_timeout_s=0.2) as server, ThreadPoolExecutor(1) as pool:
        stream = pool.submit(rest_of, *(opened := open_stream(server)))
        assert opened[1].wait(20)
        children = server.children()
        HANGS[kind](children[role])
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(30)
        stream.result(10)  # the client's connection has ended
        assert psutil.wait_procs(list(children.values()), timeout=0)[1] == [] and folders(place) == []
        if role == "server":
            assert code == 1 and "the server process did not end" in server.output()
        else:
            assert code == 0 and "draining took longer than 0.2 s" in server.output()


@pytest.mark.parametrize("number", [signal.SIGTERM, slow(signal.SIGINT)])
def test_a_second_signal_does_not_wait_for_a_hung_server(place: Path, number: signal.Signals) -> None:
    with Live(**SCRIPTED, drain_timeout_s=10_000) as server:
        children = server.children()
        stop(children["server"])
        server.process.send_signal(signal.SIGTERM)
        while "draining" not in server.output():
            assert server.process.poll() is None
        server.process.send_signal(number)
        assert server.process.wait(20) == 128 + number
        assert psutil.wait_procs(list(children.values()), timeout=0)[1] == [] and folders(place) == []


def test_a_killed_parent_leaves_no_process_and_its_folder_goes_with_the_next_start(place: Path) -> None:
    with Live(**SCRIPTED) as living:
        (kept,) = folders(place)
        with Live(**SCRIPTED) as server:
            children = list(server.children().values())
            stop(children[0])
            server.process.kill()
            server.process.wait(10)
            assert psutil.wait_procs(children, timeout=10)[1] == []
        (left,) = set(folders(place)) - {kept}
        with Live(**SCRIPTED) as server:
            assert left not in folders(place) and kept in folders(place)
            assert server.generate(text="a", sampling_params={"max_new_tokens": 2}).status_code == 200
            assert living.generate(text="a", sampling_params={"max_new_tokens": 2}).status_code == 200
            assert server.stop() == 0
        assert living.stop() == 0
    assert folders(place) == []


def test_a_server_starts_with_a_long_tmpdir(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = place / ("x" * 120)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    with Live(**SCRIPTED) as server:
        assert server.generate(text="a", sampling_params={"max_new_tokens": 2}).status_code == 200
        assert server.stop() == 0
    assert folders(place) == [] and folders(long) == []
