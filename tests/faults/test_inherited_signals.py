"""Signals that a server inherits as ignored, for example from `nohup ramet serve`, or `ramet serve &` in a script."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import requests
from live import HEARING, Live
from test_deaths import SCRIPTED

IGNORING = {
    "nohup": (signal.SIGHUP, "exec nohup"),
    "a background job": (signal.SIGINT, "trap '' INT; exec"),
}


@contextmanager
def started(words: str) -> Iterator[Live]:
    """A server that a shell starts, with these words before the command."""
    command = f'{words} "$0" "$@"'
    with Live(**SCRIPTED, before=["sh", "-c", command]) as server:
        yield server


def signals_of(pid: int, kind: str) -> set[int]:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(kind))
    bits = int(line.split()[1], 16)
    return {number for number in range(1, 65) if bits >> (number - 1) & 1}


def ignored_by(pid: int) -> set[int]:
    return signals_of(pid, "SigIgn")


@pytest.mark.parametrize("how", IGNORING)
def test_a_signal_that_was_ignored_at_the_start_stays_ignored(how: str) -> None:
    number, words = IGNORING[how]
    with started(words) as server:
        assert number in ignored_by(server.process.pid)
        server.process.send_signal(number)
        for child in server.children().values():
            child.send_signal(number)
        assert requests.get(server.url + "/ready", timeout=20).status_code == 200
        assert server.generate(text="a", sampling_params={"max_new_tokens": 2}).status_code == 200
        assert server.stop() == 0


def test_a_chat_that_ignored_hang_ups_at_the_start_does_so_still() -> None:
    """Started like `nohup ramet chat URL < questions > answers`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        command = ["sh", "-c", 'exec nohup "$0" "$@"', sys.executable, "-m", "ramet", "chat", url]
        null = subprocess.DEVNULL
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=null, stderr=null) as chat:
            listener.settimeout(30)
            try:
                connection, _ = listener.accept()  # it has started, and waits for the list of models
                ignored = ignored_by(chat.pid)
                connection.close()
            finally:
                chat.kill()
    assert signal.SIGHUP in ignored


def test_a_hang_up_of_a_server_that_does_not_ignore_it_drains() -> None:
    with Live(**SCRIPTED, before=HEARING) as server:
        server.process.send_signal(signal.SIGHUP)
        assert server.process.wait(20) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_while_processes_start_ends_them_quietly(number: signal.Signals) -> None:
    """The signal of Ctrl-C or a service manager arrives before a child has set its signal handlers."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SCRIPTED.items()]
    command = [sys.executable, "-m", "ramet", "serve", "--port", "0", *flags]
    out = subprocess.PIPE
    as_in_a_terminal = partial(signal.signal, number, signal.SIG_DFL)  # jobs in the background ignore SIGINT
    with subprocess.Popen(
        command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=as_in_a_terminal
    ) as server:
        while not (importing := [pid for pid in children_of(server.pid) if is_importing(pid)]):
            assert server.poll() is None
        waiting = signals_of(importing[0], "SigBlk") | ignored_by(importing[0])
        os.killpg(server.pid, number)
        said, _ = server.communicate(timeout=60)
    assert b"Traceback" not in said, said.decode()
    assert server.returncode == 0, said.decode()
    assert number in waiting


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_importing(pid: int) -> bool:
    """Whether the process has loaded ZeroMQ, and so is still importing the modules after it."""
    try:
        return "zmq" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False
