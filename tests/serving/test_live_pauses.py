"""Pauses of a real server under load: the bundled model's outputs are those without a pause, and nothing is lost."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from live import Live

PROMPTS = [f"The capital of {country} is" for country in ("France", "Peru", "Japan", "Kenya", "Canada", "Norway")]
LONG = {"temperature": 0, "max_new_tokens": 300, "ignore_eos": True}


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live(check_invariants=True, dtype="float32") as live:  # computed again, bfloat16 rounds to another token
        yield live


def post(server: Live, path: str, **body: Any) -> requests.Response:
    return requests.post(server.url + path, json=body, timeout=30)


def outputs(server: Live, pool: ThreadPoolExecutor) -> list[Any]:
    """Of all prompts at once, when they come."""
    asked = [{"text": prompt, "sampling_params": LONG, "rid": prompt} for prompt in PROMPTS]
    return [pool.submit(lambda body=body: server.generate(**body).json()) for body in asked]


def until_all_run(server: Live) -> None:
    while server.state()["running_requests"] < len(PROMPTS):
        pass


def ids(replies: list[Any]) -> list[list[int]]:
    return [reply.result()["output_ids"] for reply in replies]


@pytest.mark.parametrize("mode", ["in_place", "retract"])
def test_outputs_are_those_without_a_pause(server: Live, mode: str) -> None:
    with ThreadPoolExecutor(16) as pool:
        expected = ids(outputs(server, pool))
        replies = outputs(server, pool)
        until_all_run(server)
        for _ in range(3):
            assert post(server, "/pause_generation", mode=mode).status_code == 200
            before = server.state()
            assert before["paused"] and requests.get(server.url + "/ready", timeout=10).status_code == 503
            assert requests.get(server.url + "/health", timeout=10).status_code == 200
            later = pool.submit(server.generate, text="x", sampling_params={"max_new_tokens": 1})
            if mode == "retract":
                assert before["running_requests"] == 0
                assert requests.post(server.url + "/flush_cache", timeout=10).status_code == 200
            while server.state()["waiting_requests"] != before["waiting_requests"] + 1:
                pass
            assert server.state()["steps"] == before["steps"]
            assert post(server, "/continue_generation").status_code == 200
            assert later.result().status_code == 200
        assert ids(replies) == expected
        retracted = [reply.result()["meta_info"]["num_retractions"] for reply in replies]
        assert (max(retracted) > 0) == (mode == "retract")
    assert requests.post(server.url + "/flush_cache?timeout=10", timeout=20).status_code == 200
    assert server.state()["free_tokens"] == server.state()["total_tokens"]


def test_an_abort_pause_ends_everything_before_its_reply(server: Live) -> None:
    with ThreadPoolExecutor(16) as pool:
        replies = outputs(server, pool)
        until_all_run(server)
        assert post(server, "/pause_generation").status_code == 200
        state = server.state()
        assert state["running_requests"] == state["waiting_requests"] == state["owned_tokens"] == 0
        later = outputs(server, pool)
        assert {reply.result()["meta_info"]["finish_reason"]["type"] for reply in replies} == {"abort"}
        while server.state()["waiting_requests"] < len(PROMPTS):
            pass
        where = requests.get(f"{server.url}/v1/requests/{PROMPTS[0]}", timeout=10).json()
        assert (where["state"], where["reason"]) == ("waiting", "paused by /pause_generation")
        assert post(server, "/abort_request", rid=PROMPTS[0]).json() == {"aborted": 1}
        assert later[0].result()["meta_info"]["finish_reason"]["message"] == "aborted by /abort_request"
        assert post(server, "/continue_generation").status_code == 200
        assert all(len(reply.result()["output_ids"]) == 300 for reply in later[1:])


def test_sigterm_ends_a_paused_server_after_its_requests(short_tmp: Any) -> None:
    with Live(runner="scripted", drain_timeout_s=20) as live, ThreadPoolExecutor(16) as pool:
        post(live, "/pause_generation", mode="in_place")
        replies = outputs(live, pool)
        while live.state()["waiting_requests"] < len(PROMPTS):
            pass
        assert live.stop() == 0
        assert all(len(reply.result()["output_ids"]) == 300 for reply in replies)
