"""What systemd is told, at a real socket, by a real server: that it is ready, that it is well, that it drains."""

import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from live import Live
from test_deaths import SCRIPTED
from test_health_of_hung_processes import until

from ramet.runtime.processes.service_manager import ServiceManager

QUIET_S = 1.5  # several pings


@pytest.fixture
def inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "600000")
        yield receiver


def wait_for(inbox: socket.socket, line: str) -> list[str]:
    """The lines that come with this one."""
    while line not in (lines := inbox.recv(4096).decode().split("\n")):
        pass
    return lines


def await_quiet(inbox: socket.socket) -> None:
    """Until no ping has come for the time of several."""
    inbox.settimeout(QUIET_S)
    deadline = time.monotonic() + 120
    with pytest.raises(TimeoutError):
        while time.monotonic() < deadline:
            inbox.recv(4096)


def test_systemd_is_told_of_the_start_of_every_hang_and_of_the_end(inbox: socket.socket):
    with Live(**SCRIPTED, watchdog_timeout=2) as server, ThreadPoolExecutor(1) as pool:
        assert "EXTEND_TIMEOUT_USEC=30000000" in wait_for(inbox, "STATUS=starting: the model is being loaded")
        assert f"STATUS=serves at {server.url}" in wait_for(inbox, "READY=1")
        wait_for(inbox, "WATCHDOG=1")
        children = server.children()
        for child in children.values():
            assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & set(child.environ())
        children["scheduler"].suspend()
        try:
            whole = pool.submit(server.generate, text="a", sampling_params={"max_new_tokens": 2})
            until(server, 503)
            await_quiet(inbox)
        finally:
            children["scheduler"].resume()
        inbox.settimeout(30)
        wait_for(inbox, "WATCHDOG=1")
        assert "service manager gets no pings" in server.output()
        assert whole.result(30).status_code == 200
        assert server.stop() == 0
        ended = wait_for(inbox, "STOPPING=1")
        assert ended[2].startswith("EXTEND_TIMEOUT_USEC=") and int(ended[2].partition("=")[2]) > 60_000_000


def test_a_socket_without_a_file_is_told_as_well():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        name = f"ramet-test-{os.getpid()}"
        receiver.bind(f"\0{name}")
        receiver.settimeout(10)
        manager = ServiceManager.taken_from({"NOTIFY_SOCKET": f"@{name}"})
        manager.ready("http://x", Path("/nowhere"), 1.0)
        assert receiver.recv(4096).decode().split("\n")[0] == "READY=1"
        manager.stopping(2.0)
        assert receiver.recv(4096).decode().split("\n")[-1] == "EXTEND_TIMEOUT_USEC=2000000"


@pytest.mark.parametrize(
    ("watchdog", "wanted_s"),
    [
        ({"WATCHDOG_USEC": "1500000"}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "1"}, None),  # meant for another process
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "x"}, None),
        ({"WATCHDOG_USEC": "\u00b2"}, None),
        ({"WATCHDOG_USEC": "9" * 30}, 86400.0),
        ({"WATCHDOG_USEC": "9" * 5000}, 86400.0),
        ({}, None),
    ],
)
def test_pings_are_sent_to_who_wants_them_of_this_process(watchdog: dict[str, str], wanted_s: float | None):
    env = {"NOTIFY_SOCKET": "/nowhere", **watchdog, "HOME": "/"}
    manager = ServiceManager.taken_from(env)
    assert vars(manager)["_watchdog_s"] == wanted_s and env == {"HOME": "/"}
