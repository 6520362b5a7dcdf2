"""Timelines of a server: by URL, by the id of a process, by a signal, and when a process has ended."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import requests
from live import Live
from timelines import read_timeline

ADMIN = {"Authorization": "Bearer a"}


def ramet_trace(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ramet", "trace", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def names(events: list[dict[str, Any]]) -> dict[int, str]:
    return {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}


def told_file(server: Live) -> Path:
    """That the log names."""
    deadline = time.monotonic() + 120
    while (found := re.search(r"lately is in (\S+)", server.output())) is None:
        assert time.monotonic() < deadline, server.output()
    return Path(found[1])


@pytest.fixture
def server(tmp_path: Path) -> Any:
    with Live(runner="scripted", trace_dir=str(tmp_path / "traces"), admin_api_key="a") as live:
        asked = live.generate(text="a b c", sampling_params={"max_new_tokens": 6})
        assert asked.status_code == 200
        yield live


def test_a_timeline_has_every_process_and_the_steps_of_a_request(server: Live, tmp_path: Path):
    assert requests.get(server.url + "/trace", timeout=30).status_code == 401
    wrong = requests.get(server.url + "/trace?seconds=-1", headers=ADMIN, timeout=30)
    assert wrong.status_code == 400 and "seconds" in wrong.text
    file = tmp_path / "by-url.json.gz"
    written = ramet_trace(server.url, "-o", str(file), "--api-key", "a")
    assert written.returncode == 0, written.stderr
    events = read_timeline(file)
    children = server.children()
    assert names(events) == {child.pid: role for role, child in children.items()}
    steps = [event for event in events if event["pid"] == children["scheduler"].pid and event["ph"] == "X"]
    by_name = {name: [event for event in steps if event["name"] == name] for name in ("plan", "results", "forward")}
    assert [len(found) for found in by_name.values()] == [6, 6, 6]
    prefill = [event["args"]["prefill_tokens"] for event in by_name["forward"]]
    assert prefill[0] > 0 and not any(prefill[1:])
    messages = {event["name"] for event in events if event["pid"] == children["tokenizer-0"].pid}
    assert "Generate" in messages
    again = ramet_trace(server.url, "-o", str(file), "--api-key", "a")
    assert again.returncode == 2 and "is there already" in again.stderr


def test_a_server_of_which_every_process_hangs_shows_what_each_is_at(server: Live, tmp_path: Path):
    children = server.children()
    with requests.post(
        server.url + "/generate",
        json={"text": "x", "sampling_params": {"max_new_tokens": 900, "ignore_eos": True}, "stream": True},
        stream=True, timeout=60,
    ) as response:  # fmt: skip
        lines = response.iter_lines()
        next(lines)
        for child in children.values():
            child.suspend()
        try:
            for number, pid in enumerate((server.process.pid, children["scheduler"].pid)):
                written = ramet_trace("--pid", str(pid), "-o", str(tmp_path / f"{number}.json.gz"))
                assert written.returncode == 0, written.stderr
                assert set(names(read_timeline(tmp_path / f"{number}.json.gz")).values()) == set(children)
        finally:
            for child in children.values():
                child.resume()
    refused = ramet_trace("--pid", str(os.getpid()), "-o", str(tmp_path / "no.json.gz"))
    assert refused.returncode == 2 and "is not a process of a server" in refused.stderr


def test_a_signal_writes_a_timeline_and_the_server_goes_on(server: Live):
    for pid in (server.process.pid, *(child.pid for child in server.children().values())):
        os.kill(pid, signal.SIGUSR2)  # as a terminal sends it to a group
    file = told_file(server)
    assert set(names(read_timeline(file)).values()) == set(server.children())
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert server.generate(text="a", sampling_params={"max_new_tokens": 2}).status_code == 200


def test_the_watchdog_leaves_a_timeline_with_the_step_that_did_not_end(tmp_path: Path):
    """The step takes longer than the timeout; no Python of the scheduler runs when it is ended."""
    slow_step = {"scripted_step_ms": 60_000, "watchdog_timeout": 0.5}
    with Live(runner="scripted", trace_dir=str(tmp_path), **slow_step) as server:
        pid = server.children()["scheduler"].pid
        assert server.generate(text="a", sampling_params={"max_new_tokens": 2}).status_code == 503
        assert server.process.wait(30) == 1
        events = read_timeline(told_file(server))
        (left,) = [each for each in events if each["pid"] == pid and each["name"] == "working when this was written"]
        assert left["dur"] > 400_000
