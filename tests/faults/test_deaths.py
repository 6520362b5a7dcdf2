"""Processes that die, are told to end, or hang: everybody is told, nothing waits for ever, the exit code says so."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from live import Live
from samples import slow

ENDLESS = {"max_new_tokens": 900_000, "temperature": 0, "ignore_eos": True}
SCRIPTED = {"runner": "scripted", "context_length": 1_000_000, "max_total_tokens": 4_000_000}


def open_stream(server: Live) -> tuple[requests.Response, threading.Event]:
    """A stream, and the event that its reader sets at the first line."""
    body = {"prompt": "x", "max_tokens": 900_000, "stream": True, "ignore_eos": True}
    response = requests.post(server.url + "/v1/completions", json=body, stream=True, timeout=60)
    assert response.status_code == 200
    return response, threading.Event()


def rest_of(response: requests.Response, begun: threading.Event) -> list[bytes] | Exception:
    """The last events of a stream, or how its connection broke."""
    last: list[bytes] = []
    try:
        for line in response.iter_lines():
            if line:
                begun.set()
                last = [*last[-3:], line]
    except requests.exceptions.RequestException as error:
        return error
    return last


@pytest.mark.parametrize("role", ["scheduler", "tokenizer-0", "detokenizer", "server"])
def test_a_killed_process_ends_the_server_and_every_client_knows(role: str):
    with Live(**SCRIPTED) as server, ThreadPoolExecutor(2) as pool:
        response, begun = open_stream(server)
        stream = pool.submit(rest_of, response, begun)
        whole: Future[requests.Response] = pool.submit(server.generate, text="y", sampling_params=ENDLESS)
        assert begun.wait(20)
        while server.state()["running_requests"] < 2:
            assert not whole.done()
        os.kill(server.children()[role].pid, signal.SIGKILL)
        assert server.process.wait(15) == 1
        ended = stream.result(10)
        if role == "server":
            assert isinstance(ended, Exception) and isinstance(whole.exception(10), requests.exceptions.ConnectionError)
        else:
            assert isinstance(ended, list) and ended[-1] == b"data: [DONE]"
            error = json.loads(ended[-2].removeprefix(b"data: "))["error"]
            assert role in error["message"] and error["retryable"] in (True, False)
            answer = whole.result(10)
            assert answer.status_code == 503 and role in answer.json()["error"]["message"]
        assert f"{role} process ended with signal SIGKILL" in server.output()
        assert "Current thread" in server.output()  # the stacks of the others


CHATS = {
    "/v1/chat/completions": ({"messages": [{"role": "user", "content": "a"}], "max_tokens": 900_000}, b"[DONE]"),
    "/v1/messages": ({"messages": [{"role": "user", "content": "a"}], "max_tokens": 900_000}, b"error"),
    "/v1/responses": ({"input": "a", "max_output_tokens": 900_000}, b"response.failed"),
}


@pytest.mark.parametrize("role", ["scheduler", slow("tokenizer-0"), slow("detokenizer")])
def test_a_killed_process_is_told_to_every_chat_in_its_shape(role: str):
    with Live(**SCRIPTED) as server, ThreadPoolExecutor(6) as pool:
        streams, wholes = {}, {}
        for path, (body, _) in CHATS.items():
            asked = {**body, "ignore_eos": True}
            response = requests.post(server.url + path, json={**asked, "stream": True}, stream=True, timeout=60)
            begun = threading.Event()
            streams[path] = pool.submit(rest_of, response, begun)
            assert begun.wait(20)
            wholes[path] = pool.submit(requests.post, server.url + path, json=asked, timeout=60)
        while server.state()["running_requests"] < 6:
            assert not any(whole.done() for whole in wholes.values())
        os.kill(server.children()[role].pid, signal.SIGKILL)
        assert server.process.wait(15) == 1
        for path, (_, sign) in CHATS.items():
            ended = streams[path].result(10)
            assert isinstance(ended, list) and any(sign in line for line in ended), ended
            assert any(role.encode() in line for line in ended)
            answer = wholes[path].result(10)
            assert answer.status_code == 503 and role in answer.json()["error"]["message"]
            assert (answer.json().get("type") == "error") == (path == "/v1/messages")


def test_no_process_outlives_its_killed_parent():
    with Live(**SCRIPTED) as server:
        children = list(server.children().values())
        server.process.kill()
        for child in children:
            child.wait(10)


def test_sigterm_finishes_what_runs_and_refuses_what_comes():
    with Live(**SCRIPTED) as server, ThreadPoolExecutor(2) as pool:
        session = requests.Session()  # a connection that is open already: the listening socket may close
        session.get(server.url + "/ready", timeout=10).raise_for_status()
        body = {"prompt": "x", "max_tokens": 8_000, "stream": True, "ignore_eos": True}
        response = requests.post(server.url + "/v1/completions", json=body, stream=True, timeout=60)
        begun = threading.Event()
        stream = pool.submit(rest_of, response, begun)
        assert begun.wait(20)
        server.process.send_signal(signal.SIGTERM)
        while session.get(server.url + "/ready", timeout=10).status_code == 200:
            assert not stream.done()
        assert session.get(server.url + "/health", timeout=10).status_code == 200
        refused = session.post(server.url + "/generate", json={"text": "late"}, timeout=10)
        assert refused.status_code == 503 and "error" in refused.json()
        ended = stream.result(60)
        assert isinstance(ended, list) and ended[-1] == b"data: [DONE]"
        assert json.loads(ended[-2].removeprefix(b"data: "))["choices"][0]["finish_reason"] == "length"
        assert server.process.wait(20) == 0


def test_sigterm_to_the_whole_process_group_drains_too():
    """As a service manager or a terminal sends it: only the parent may act on it."""
    with Live(**SCRIPTED) as server, ThreadPoolExecutor(1) as pool:
        body = {"prompt": "x", "max_tokens": 5_000, "stream": True, "ignore_eos": True}
        response = requests.post(server.url + "/v1/completions", json=body, stream=True, timeout=60)
        begun = threading.Event()
        stream = pool.submit(rest_of, response, begun)
        assert begun.wait(20)
        for pid in [server.process.pid, *(child.pid for child in server.children().values())]:
            os.kill(pid, signal.SIGTERM)
        ended = stream.result(60)
        assert isinstance(ended, list) and ended[-1] == b"data: [DONE]"
        assert server.process.wait(20) == 0


def test_sigterm_when_idle_ends_at_once_with_zero():
    with Live(**SCRIPTED) as server:
        assert server.stop() == 0


def test_a_port_in_use_is_one_line_that_names_the_option():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        second = subprocess.run(
            [sys.executable, "-m", "ramet", "serve", "--runner", "scripted", "--port", f"{port}"],
            capture_output=True,
            text=True,
            timeout=60,
        )
    (line,) = [line for line in second.stderr.splitlines() if " INFO " not in line]
    assert f"--port {port} is in use on 127.0.0.1; choose another" in line
    assert second.returncode == 2 and second.stdout == ""


def test_no_room_for_temporary_files_is_one_line() -> None:
    command = [sys.executable, "-m", "ramet", "serve", "--runner", "scripted", "--port", "0"]
    limited = ["sh", "-c", 'ulimit -f 64; exec "$0" "$@"', *command]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60)
    (line,) = done.stderr.splitlines()
    assert "no folder has room" in line and "TMPDIR" in line
    assert done.returncode == 2 and done.stdout == ""


HANG = """
import sys, threading
from pathlib import Path
from ramet.ipc.ring import Ring
from ramet.runtime.scheduler.process.watchdog import Watchdog
dog = Watchdog(0.2, Ring(Path(sys.argv[1]), {{"step": ()}}, 8))
dog.beat(False)
{then}
threading.Event().wait({wait})
"""


def test_a_step_that_never_ends_dumps_stacks_and_exits(tmp_path: Path):
    code = HANG.format(then="", wait="")
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.ring")], capture_output=True, text=True, timeout=30
    )
    assert ended.returncode == 1 and "Timeout" in ended.stderr and "in wait" in ended.stderr


def test_an_idle_scheduler_is_not_a_hang(tmp_path: Path):
    code = HANG.format(then="dog.beat(True)", wait="0.6")
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.ring")], timeout=30).returncode == 0
