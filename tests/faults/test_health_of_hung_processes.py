"""Processes that stop or spin: /health says so after --watchdog-timeout, and answers meanwhile; busy ones are well."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from live import Live
from test_deaths import SCRIPTED

TIMEOUT_S = 1.0
PROBES = ("/health", "/ping", "/ready")


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live(**SCRIPTED, watchdog_timeout=TIMEOUT_S) as live:
        yield live


def status(server: Live, path: str = "/health") -> int:
    return requests.get(server.url + path, timeout=10).status_code


def until(server: Live, wanted: int) -> requests.Response:
    """The first /health with this status."""
    deadline = time.monotonic() + 120
    while (answer := requests.get(server.url + "/health", timeout=10)).status_code != wanted:
        assert time.monotonic() < deadline, answer.text
    return answer


@pytest.mark.parametrize("role", ["scheduler", "tokenizer-0", "detokenizer"])
def test_health_fails_while_a_process_is_stopped_with_work_before_it(server: Live, role: str):
    """The process waits when it is stopped: only the request after that is not computed."""
    until(server, 200)
    process = server.children()[role]
    with ThreadPoolExecutor(1) as pool:
        process.suspend()
        try:
            whole = pool.submit(server.generate, text="a", sampling_params={"max_new_tokens": 4})
            answer = until(server, 503)
            assert f"The {role} process has not moved for 1 s" in answer.json()["error"]["message"]
            assert [status(server, path) for path in PROBES] == [503] * 3
        finally:
            process.resume()
        assert whole.result(30).status_code == 200
    until(server, 200)


def test_health_fails_while_the_scheduler_is_stopped_in_the_middle_of_a_request(server: Live):
    body = {"prompt": "x", "max_tokens": 900_000, "stream": True, "ignore_eos": True}
    with requests.post(server.url + "/v1/completions", json=body, stream=True, timeout=60) as response:
        lines = response.iter_lines()
        next(lines)
        process = server.children()["scheduler"]
        process.suspend()
        try:
            assert "scheduler" in until(server, 503).text
        finally:
            process.resume()
        until(server, 200)


def test_a_server_is_well_through_steps_that_are_long_and_in_the_quiet_after_them():
    """The requests take longer than the timeout, a step of them does not."""
    timeout_s = 3.0
    with Live(**SCRIPTED, watchdog_timeout=timeout_s, scripted_step_ms=1200) as server, ThreadPoolExecutor(1) as pool:
        whole = pool.submit(server.generate, text="a" * 2000, sampling_params={"max_new_tokens": 3})
        while not whole.done():
            answer = requests.get(server.url + "/health", timeout=10)
            assert answer.status_code == 200, answer.text
        assert whole.result().status_code == 200
        quiet_until = time.monotonic() + 1.5 * timeout_s
        while time.monotonic() < quiet_until:
            assert status(server) == 200


@pytest.mark.slow
def test_health_fails_before_the_watchdog_ends_a_process_that_spins(monkeypatch: pytest.MonkeyPatch):
    from test_hangs import FAKES, spin

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAKES / "hang"), os.environ.get("PYTHONPATH", "")]))
    with Live(**SCRIPTED, watchdog_timeout=3) as server:
        body = {"prompt": "x", "max_tokens": 900_000, "stream": True, "ignore_eos": True}
        with requests.post(server.url + "/v1/completions", json=body, stream=True, timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            spin(server.children()["scheduler"])
            until(server, 503)
            assert server.process.wait(20) == 1
