"""The server process with real sockets: its port, its exit codes, and what it does not import."""

import json
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from ramet.ipc import paths
from ramet.ipc.channel import Receiver, Sender
from ramet.ipc.messages import (
    Closed,
    Drain,
    Finish,
    FinishKind,
    Generate,
    Opened,
    PeerDied,
    Ready,
    TokenStep,
    ToTokenizer,
)
from ramet.ipc.paths import SocketFolder
from ramet.ipc.ring import Ring
from ramet.ipc.spec import DetokenizeOptions
from ramet.runtime.config import ServeArgs, make_args
from ramet.runtime.errors import ConfigError
from ramet.runtime.processes import launch
from ramet.runtime.processes.outputs import Outputs
from ramet.runtime.server.process import bind
from tests.fakes.engine import LIMITS

CHILD = """
import json, sys
from pathlib import Path
from ramet.ipc.paths import SocketFolder
from ramet.ipc.ring import Ring
from ramet.runtime.config import make_args
from ramet.runtime.server.process import run

def ready(phases, port):
    heavy = {"torch", "transformers", "numpy", "tokenizers", "triton"} & set(sys.modules)
    print(json.dumps({"phases": phases, "port": port, "heavy": sorted(heavy)}), flush=True)

run(make_args(port=0), SocketFolder(Path(sys.argv[1])), ready)
"""


class Running:
    """A server process, and the other ends of its sockets."""

    def __init__(self, folder: SocketFolder) -> None:
        self.tokenizer: Receiver[Any] = Receiver(folder.address(paths.tokenizer(0)), ToTokenizer)
        self.to_server = Sender(folder.address(paths.SERVER))
        self.child = subprocess.Popen([sys.executable, "-c", CHILD, str(folder.path)], stdout=subprocess.PIPE)
        assert self.child.stdout is not None
        self.facts = json.loads(self.child.stdout.readline())
        self.url = f"http://127.0.0.1:{self.facts['port']}"
        for name in (paths.tokenizer(0), paths.SCHEDULER, paths.DETOKENIZER):
            Ring(folder.ring(name), {}, 1)
        self.to_server.send(LIMITS)
        assert json.loads(self.child.stdout.readline())["port"] == self.facts["port"]

    def post(self) -> "Asked":
        return Asked(self.url + "/generate")

    def prompt(self) -> Generate:
        """The next prompt that the server sends."""
        message = self.tokenizer.recv(timeout_s=20)
        assert isinstance(message, Generate)
        return message

    def exit_code(self) -> int:
        return self.child.wait(timeout=20)

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        assert self.child.stdout is not None
        self.child.stdout.close()
        self.to_server.close()
        self.tokenizer.close()


class Asked:
    """One POST in a thread; `answer` waits for (status, body)."""

    def __init__(self, url: str) -> None:
        self._url, self._answer = url, (0, "")
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def answer(self) -> tuple[int, str]:
        self._thread.join(20)
        return self._answer

    def _ask(self) -> None:
        request = urllib.request.Request(self._url, data=b'{"text": "a"}', method="POST")
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                self._answer = response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            self._answer = error.code, error.read().decode()


@pytest.fixture
def running() -> Iterator[Running]:
    folder = SocketFolder.create()
    server = Running(folder)
    yield server
    server.close()
    folder.remove()


def ended(uid: int) -> TokenStep:
    return TokenStep(
        [uid],
        b"\1\0\0\0",
        [Opened(uid, DetokenizeOptions(), 1, 0)],
        [Closed(uid, Finish(FinishKind.LENGTH, length=1))],
        texts=["Hi"],
        tails=[""],
    )


def test_a_drain_finishes_what_runs_and_ends_with_0(running: Running) -> None:
    asked = running.post()
    assert running.prompt().uids == [1]
    running.to_server.send(Drain(20.0))
    running.to_server.send(ended(1))
    status, body = asked.answer()
    assert status == 200 and json.loads(body)["text"] == "Hi"
    assert running.exit_code() == 0


def test_a_drain_that_takes_too_long_ends_requests_with_an_error_and_ends_with_0(running: Running) -> None:
    asked = running.post()
    assert running.prompt().uids == [1]
    running.to_server.send(Drain(0.1))
    status, body = asked.answer()
    assert status == 503 and "shutting down" in body
    assert running.exit_code() == 0


def test_a_dead_peer_ends_requests_with_an_error_and_ends_with_1(running: Running) -> None:
    asked = running.post()
    assert running.prompt().uids == [1]
    running.to_server.send(PeerDied("detokenizer", -9))
    status, body = asked.answer()
    assert status == 503 and "detokenizer" in body
    assert running.exit_code() == 1


def test_an_idle_server_drains_at_once(running: Running) -> None:
    running.to_server.send(Drain(1000.0))
    assert running.exit_code() == 0


def test_the_server_process_is_light(running: Running) -> None:
    assert running.facts["heavy"] == []


def test_a_port_in_use_is_said_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--port {port} is in use"):
            bind(ServeArgs(port=port))


def test_a_host_that_is_none_of_ours_is_a_clear_error() -> None:
    with pytest.raises(ConfigError, match=r"203\.0\.113\.7"):
        bind(ServeArgs(host="203.0.113.7", port=0))


def test_port_0_is_a_free_port_and_it_can_be_bound_again_at_once() -> None:
    first = bind(ServeArgs(port=0))
    port = first.getsockname()[1]
    first.close()
    again = bind(ServeArgs(port=port))
    assert again.getsockname()[1] == port > 0
    again.close()


@pytest.mark.parametrize(
    "options, warned", [({}, False), ({"host": "0.0.0.0"}, True), ({"host": "0.0.0.0", "api_key": "key"}, False)]
)
def test_a_server_that_everybody_may_use_says_so(
    options: dict[str, Any], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bind(ServeArgs(port=0, **options)).close()
    assert ("without --api-key" in caplog.text) is warned


@pytest.mark.parametrize(("options", "has_page"), [({}, True), ({"ui": False}, False), ({"host": "::"}, True)])
def test_the_page_is_named_at_the_start_where_there_is_one(
    options: dict[str, Any], has_page: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    outputs = Outputs()
    url = launch._announce(make_args(**options), [Ready("server", 1, [], 31000, LIMITS)], 1.0, outputs)
    outputs.close()
    assert (f"open {url}/ui in a browser" in capfd.readouterr().out) == has_page
