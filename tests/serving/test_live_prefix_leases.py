"""Leases of clients over HTTP, on a real server without a model: taken, shown, given back, lost with a connection."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from live import Live

PROMPT = "The quick brown fox jumps over the lazy dog, and nobody knows why it does so again and again."
NOTHING = {"max_new_tokens": 0}


@pytest.fixture
def server() -> Iterator[Live]:
    options = {"max_total_tokens": 2048, "context_length": 1024, "max_prefix_lease_s": 100}
    with Live(runner="scripted", check_invariants=True, **options) as live:
        yield live
        state = live.state()
        assert state["running_requests"] == state["leased_tokens"] == state["owned_tokens"] == 0


def warm_up(server: Live, seconds: float, **more: Any) -> int:
    """Ask for a lease on a prompt, and nothing else; returns how many tokens it has."""
    reply = server.generate(**{"text": PROMPT, "sampling_params": NOTHING, "prefix_lease_s": seconds, **more})
    assert reply.status_code == 200, reply.text
    return reply.json()["meta_info"]["prompt_tokens"]


def held(server: Live) -> tuple[int, int]:
    state = server.state()
    return state["prefix_leases"], state["prefix_lease_tokens"]


def until_nothing_is_held(server: Live) -> None:
    for _ in range(2000):
        if held(server) == (0, 0):
            return
    raise AssertionError(server.state())


def refused(server: Live, **body: Any) -> tuple[int, str]:
    reply = server.generate(**{"text": PROMPT, "sampling_params": NOTHING, **body})
    return reply.status_code, reply.json()["error"]["message"]


def test_a_lease_is_shown_and_given_back(server: Live) -> None:
    tokens = warm_up(server, 60)
    state = server.state()
    assert (state["prefix_leases"], state["prefix_lease_tokens"]) == (1, tokens) and tokens > 10
    assert 0 < state["next_prefix_lease_end_s"] <= 60 and state["prefix_lease_limit"] == 1024
    assert PROMPT[:9] not in str(state)
    warm_up(server, 50, cache_salt="someone else")
    assert held(server) == (2, 2 * tokens)
    warm_up(server, 0)
    assert held(server) == (1, tokens)
    assert requests.post(server.url + "/flush_cache", timeout=10).status_code == 200
    assert held(server) == (0, 0) and server.state()["next_prefix_lease_end_s"] is None
    assert server.state()["free_tokens"] == 2048


def test_a_lease_ends_by_itself_while_nothing_else_happens(server: Live) -> None:
    warm_up(server, 0.2)
    until_nothing_is_held(server)


def test_a_client_that_goes_away_before_its_request_has_ended_holds_nothing(server: Live) -> None:
    body = {"text": PROMPT, "stream": True, "sampling_params": {"max_new_tokens": 900, "ignore_eos": True}}
    with requests.post(server.url + "/generate", json={**body, "prefix_lease_s": 90}, stream=True, timeout=30) as reply:
        next(reply.iter_lines())
    until_nothing_is_held(server)


def test_an_abort_by_its_id_ends_the_lease_of_a_request_that_runs(server: Live) -> None:
    body = {"text": PROMPT, "rid": "mine", "stream": True, "prefix_lease_s": 90}
    sampling = {"max_new_tokens": 900, "ignore_eos": True}
    with requests.post(
        server.url + "/generate", json={**body, "sampling_params": sampling}, stream=True, timeout=30
    ) as reply:
        lines = reply.iter_lines()
        next(lines)
        requests.post(server.url + "/abort_request", json={"rid": "mine"}, timeout=10)
        assert any(b"[DONE]" in line for line in lines)
    until_nothing_is_held(server)


def test_what_cannot_be_held_is_refused_by_name(server: Live) -> None:
    status, message = refused(server, prefix_lease_s=100.5)
    assert status == 400 and message.startswith("prefix_lease_s is 100.5, must be in [0, 100]")
    assert "--max-prefix-lease-s" in message

    for first in range(5, 8):
        reply = server.generate(input_ids=[first] * 400, sampling_params=NOTHING, prefix_lease_s=99)
        assert reply.status_code == (200 if first < 7 else 503)
    assert reply.json()["error"]["message"].startswith("prefix_lease_s asks to hold 400 tokens")
    assert held(server) == (2, 800)
