"""If nobody reads a server's output, or it cannot be written, requests are answered and lost lines are counted."""

import fcntl
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from ramet.runtime.processes.outputs import MAX_WAITING

START_S = 60
SMALLEST_PIPE = 4096  # bytes that the kernel keeps for a reader
MANY = {"text": ["a"] * 64, "sampling_params": {"max_new_tokens": 1, "n": MAX_WAITING // 64 + 16}}  # a line each
ENDLESS = {"text": "a", "sampling_params": {"max_new_tokens": 900_000, "ignore_eos": True}}
SCRIPTED = ["--runner", "scripted", "--context-length", "1000000", "--max-total-tokens", "4000000"]


def small_pipe() -> tuple[int, int]:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, SMALLEST_PIPE)
    return reader, writer


@contextmanager
def started(output: str, writer: int, *options: str) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """A server whose `output` goes to this descriptor, and its address, which is read from the other output."""
    port = free_port()
    command = [sys.executable, "-m", "ramet", "serve", "--port", str(port), *SCRIPTED, "--log-requests", *options]
    given = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, output: writer}
    process = subprocess.Popen(command, **given)  # type: ignore[call-overload]
    url = f"http://127.0.0.1:{port}"
    try:
        await_ready(url, process)
        yield process, url
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def await_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        try:
            if requests.get(url + "/ready", timeout=START_S).status_code == 200:
                return
        except requests.exceptions.ConnectionError:
            select.select([], [], [], 0.05)
    raise AssertionError(f"the server ended with {process.returncode}")


def dropped(url: str, output: str) -> int:
    page = requests.get(url + "/metrics", timeout=20).text
    found = re.search(rf'^ramet:log_lines_dropped_total{{output="{output}"}} (\S+)$', page, re.MULTILINE)
    assert found
    return int(float(found[1]))


def rest_of(reader: int, until: bytes) -> bytes:
    """The data that is read up to and including this text."""
    data = b""
    while until not in data:
        ready, _, _ = select.select([reader], [], [], 20)
        assert ready, data[-2000:]
        data += os.read(reader, 1 << 16)
    return data


@pytest.mark.parametrize(("output", "target"), [("stderr", "log"), ("stdout", "stdout")])
def test_an_output_that_nobody_reads_stops_no_reply_and_its_lines_are_counted(output: str, target: str) -> None:
    reader, writer = small_pipe()
    with started(output, writer, "--log-requests-target", target) as (process, url):
        os.close(writer)
        answer = requests.post(url + "/generate", json=MANY, timeout=60)
        assert answer.status_code == 200 and len(answer.json()) == 64 * MANY["sampling_params"]["n"]
        for _ in range(2):  # each writes a line from the server's event loop
            assert requests.post(url + "/flush_cache", timeout=20).status_code == 200
        assert (num := dropped(url, output)) > 0
        if output == "stderr":
            told = rest_of(reader, b"lines of stderr were dropped")
            said = int(re.search(r" (\d+) lines of stderr", told.decode())[1])
            assert num <= said <= dropped(url, output)  # another line may have come in between
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    os.close(reader)


def test_clients_hear_of_a_death_although_nobody_reads_the_stacks() -> None:
    """Stacks are written by C code, which cannot be interrupted."""
    reader, writer = small_pipe()
    with started("stderr", writer) as (process, url), ThreadPoolExecutor(1) as pool:
        os.close(writer)
        requests.post(url + "/generate", json=MANY, timeout=60).raise_for_status()
        waiting = pool.submit(requests.post, url + "/generate", json=ENDLESS, timeout=60)
        state = url + "/get_server_info"
        while not requests.get(state, timeout=20).json()["internal_states"][0]["running_requests"]:
            assert not waiting.done()
        (scheduler,) = [pid for pid in children_of(process.pid) if command_of(pid).endswith("\0scheduler\0")]
        os.kill(scheduler, signal.SIGKILL)
        assert waiting.result(20).status_code == 503
        assert process.wait(30) == 1
    os.close(reader)


@pytest.mark.parametrize("output", ["stderr", "stdout"])
def test_a_full_disk_under_an_output_stops_no_reply(output: str) -> None:
    target = "log" if output == "stderr" else "stdout"
    full = os.open("/dev/full", os.O_WRONLY)
    with started(output, full, "--log-requests-target", target) as (process, url):
        os.close(full)
        for _ in range(3):
            requests.post(url + "/generate", json={"text": "a"}, timeout=20).raise_for_status()
        while dropped(url, output) < 3:
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()
