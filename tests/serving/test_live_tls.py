"""A real server with TLS, and what ramet itself has of clients: the chat, the language, the bench."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from live import Live
from tls_files import Files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def live(files: Files) -> Iterator[Live]:
    with Live(host="localhost", **files.options) as server:
        yield server


def run(files: Files, *argv: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "SSL_CERT_FILE": str(files.authorities)}
    command = [sys.executable, *argv]
    return subprocess.run(command, env=env, input=text, capture_output=True, text=True, timeout=60, check=False)


def test_the_address_that_is_printed_is_that_of_https(live: Live, files: Files) -> None:
    assert live.url.startswith("https://localhost:")
    assert requests.get(live.url + "/v1/models", verify=str(files.authorities), timeout=10).status_code == 200
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(live.url + "/v1/models", timeout=10)


def test_a_chat_trusts_the_authorities_of_the_environment(live: Live, files: Files) -> None:
    done = run(files, "-m", "ramet", "chat", live.url, "--set", "temperature=0", text="What is the capital of Peru?")
    assert "Lima" in done.stdout, done.stderr


def test_a_program_of_the_language_does_so_too(live: Live, files: Files) -> None:
    program = f"""
from ramet import Endpoint, function, gen
@function
def capital(s):
    s += "The capital of France is"
    s += gen("city", max_tokens=8, stop=".")
print(capital.run(backend=Endpoint({live.url!r}), temperature=0)["city"])
"""
    done = run(files, "-c", program)
    assert done.stdout == " Paris\n", done.stderr


def test_the_bench_does_so_too(live: Live, files: Files, tmp_path: Path) -> None:
    argv = ("-m", "ramet", "bench", "serving", "--base-url", live.url, "--num-prompts", "2")
    done = run(files, *argv, "--random-input-len", "8", "--random-output-len", "4")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_drain_waits_for_no_handshake(files: Files) -> None:
    with Live(host="localhost", runner="scripted", **files.options) as server:
        port = int(server.url.rpartition(":")[2])
        with socket.create_connection(("localhost", port)):
            assert requests.get(server.url + "/health", verify=str(files.authorities), timeout=10).status_code == 200
            assert server.stop() == 0
