"""Endpoint on a server of ramet, against written exchanges: what it is told once only, and answers that are none."""

from typing import Any

import pytest
from exchanges import Exchange, Service, raw

from ramet import BackendError, Endpoint, function, gen
from ramet.frontend.backends import http

PREFIX = "These words are long enough to be worth a request of their own, for two forks."
BUSY = raw('{"error": {"message": "the queue is full"}}', 503, kind="application/json")
ONE_TOKEN = {"sampling_params": {"max_new_tokens": 1}}
LEASED = {"sampling_params": {"max_new_tokens": 0}, "token_healing": False}


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(http, "LONGEST_WAIT_S", 0.002)


def reply(text: str) -> dict[str, Any]:
    reason = {"type": "stop", "matched": 1}
    return {"text": text, "output_ids": [1], "meta_info": {"id": "a", "finish_reason": reason, "completion_tokens": 1}}


def server(service: Service) -> Endpoint:
    return Endpoint(service.url, server="ramet")


def hold(seconds: float, answer: Any) -> Exchange:
    return Exchange("/language/generate", {"prompt": [PREFIX], "prefix_lease_s": seconds, **LEASED}, answer)


def test_a_hint_that_a_busy_server_refuses_is_not_told_again():
    @function
    def program(s: Any) -> None:
        s += PREFIX
        forks = s.fork(2)
        forks += [" a", " b"]
        forks += gen("x", max_tokens=1)
        forks.join()

    calls = [
        Exchange("/language/generate", {"prompt": [PREFIX + word], **ONE_TOKEN}, reply(word)) for word in (" a", " b")
    ]
    with Service(hold(60.0, BUSY), *calls) as service:
        assert program.run(backend=server(service))["x"] == [" a", " b"]


@pytest.mark.parametrize("seconds", [60.0, 0.0])
def test_to_hold_a_prefix_is_asked_once(seconds: float):
    with Service(hold(seconds, BUSY)) as service, pytest.raises(BackendError, match="the queue is full"):
        server(service).cache_prefix(PREFIX, seconds)


def test_the_end_of_programs_is_told_once():
    with Service(Exchange("/language/end", {"programs": ["p"]}, BUSY)) as service:
        backend = server(service)
        with pytest.raises(BackendError, match="the queue is full"):
            backend.loop.start(backend.end(["p"])).result()
