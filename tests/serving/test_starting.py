"""A server that loads its model answers at once that it does, and serves on the same connection when it has."""

import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from live import Live

HELD = Path(__file__).parents[1] / "fakes" / "held"
BODY = {"text": "a", "sampling_params": {"max_new_tokens": 2}}


class Loading:
    """A server whose scheduler loads until `go_on`."""

    def __init__(self, gate: Path, pool: ThreadPoolExecutor) -> None:
        self._gate = gate
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.live = pool.submit(Live, runner="scripted", port=self.port, api_key="k")
        self._goes_on = threading.Event()

    def go_on(self) -> Live:
        if not self._goes_on.is_set():
            self._goes_on.set()
            self._gate.open("w").close()
        return self.live.result(60)

    def get(self, path: str, session: requests.Session | None = None) -> requests.Response:
        return (session or requests).get(self.url + path, headers={"Authorization": "Bearer k"}, timeout=10)

    def wait_until_it_listens(self) -> None:
        while not self.live.done():
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except ConnectionRefusedError:
                pass


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Loading]:
    os.mkfifo(tmp_path / "gate")
    monkeypatch.setenv("HELD_UNTIL", str(tmp_path / "gate"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HELD), os.environ.get("PYTHONPATH", "")]))
    with ThreadPoolExecutor(1) as pool:
        server = Loading(tmp_path / "gate", pool)
        try:
            yield server
        finally:
            with server.go_on():
                pass


def test_a_server_that_loads_says_so_and_serves_afterwards(loading: Loading):
    loading.wait_until_it_listens()
    session = requests.Session()
    for path in ("/health", "/ping", "/ready", "/v1/models", "/metrics"):
        early = loading.get(path, session)
        assert early.status_code == 503 and early.headers["Retry-After"] == "1", path
        assert "The server is starting" in early.json()["error"]["message"]
    headers = {"Authorization": "Bearer k"}
    early = session.post(loading.url + "/generate", json=BODY, headers=headers, timeout=10)
    assert early.status_code == 503 and early.headers["Retry-After"] == "1"
    assert loading.get("/nowhere").status_code == 404
    assert requests.post(loading.url + "/generate", json=BODY, timeout=10).status_code == 401
    loading.go_on()
    for path in ("/health", "/ping", "/ready", "/v1/models", "/metrics"):
        assert loading.get(path, session).status_code == 200, path
    assert session.post(loading.url + "/generate", json=BODY, headers=headers, timeout=10).status_code == 200
