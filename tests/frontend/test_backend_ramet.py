"""Endpoint on a server of ramet, against written exchanges: what it is told once only, and answers that are none."""

import asyncio
import re
import threading
from typing import Any

import pytest
from aiohttp import web
from exchanges import Exchange, Service, events, raw

from ramet import BackendError, CallFailed, Endpoint, function, gen, select, user
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

    has_returned = threading.Event()  # so that each call is known to be its fork's last

    async def busy(request: web.Request) -> web.StreamResponse:
        await asyncio.to_thread(has_returned.wait, 10)
        return await BUSY(request)

    calls = [
        Exchange("/language/generate", {"prompt": [PREFIX + word], **ONE_TOKEN}, reply(word)) for word in (" a", " b")
    ]
    with Service(hold(60.0, busy), *calls) as service:
        state = program.run(backend=server(service))
        has_returned.set()
        assert state["x"] == [" a", " b"]


@pytest.mark.parametrize("seconds", [60.0, 0.0])
def test_to_hold_a_prefix_is_asked_once(seconds: float):
    with Service(hold(seconds, BUSY)) as service, pytest.raises(BackendError, match="the queue is full"):
        server(service).cache_prefix(PREFIX, seconds)


def test_the_end_of_programs_is_told_once():
    with Service(Exchange("/language/end", {"programs": ["p"]}, BUSY)) as service:
        backend = server(service)
        with pytest.raises(BackendError, match="the queue is full"):
            backend.loop.start(backend.end(["p"])).result()


NO_OUTPUTS = [
    ({"choices": []}, "its answer is not as expected.*`text`"),
    ({"text": 5, "meta_info": {}}, r"its answer is not as expected.*`\$.text`"),
    ({"text": "a", "meta_info": None}, r"its answer is not as expected.*`\$.meta_info`"),
    ({"text": "a", "meta_info": {"finish_reason": "stop"}}, "its answer is not as expected"),
    ("text", "its answer is not an object: 'text'"),
    (None, "its answer is not an object"),
]


def failure(path: str, body: Any, answer: Any, node: Any, stream: bool = False) -> BackendError:
    @function
    def program(s: Any) -> None:
        s += "Hi" + node

    with Service(Exchange(path, {"prompt": ["Hi"], **body}, answer)) as service:
        state = program.run(backend=server(service), hints=False, stream=stream)
        error = state.error()
        assert isinstance(error, CallFailed) and isinstance(error.reason, BackendError), error
        assert str(error.reason).startswith(f"the server at {service.url}: ")
    return error.reason


@pytest.mark.parametrize(("answer", "words"), [*NO_OUTPUTS, ([], "it answered with 0 outputs of 1")])
def test_an_answer_that_is_no_output_is_an_error(answer: Any, words: str):
    error = failure("/language/generate", ONE_TOKEN, answer, gen("x", max_tokens=1))
    assert re.search(words, str(error)), error


@pytest.mark.parametrize(
    ("answer", "words"), [*NO_OUTPUTS, ({**reply("a"), "index": 3}, "it answered with output 3 of 1")]
)
def test_an_event_that_is_no_output_is_an_error(answer: Any, words: str):
    body = {**ONE_TOKEN, "stream": True}
    error = failure("/language/generate", body, events(answer), gen("x", max_tokens=1), stream=True)
    assert re.search(words, str(error)), error


CHOSEN = {"choice": "a", "index": 0, "scores": [0.0, 0.0], "probabilities": [0.5, 0.5], "meta_info": {}}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"choices": []}, "its answer is not as expected"),
        ({**CHOSEN, "scores": 5}, r"its answer is not as expected.*`\$.scores`"),
        ({**CHOSEN, "index": 2}, "it chose number 2 of 2"),
        ([CHOSEN], "its answer is not an object"),
    ],
)
def test_an_answer_that_is_no_choice_is_an_error(answer: Any, words: str):
    body = {"choices": ["a", "b"], "method": "token_length_normalized", "temperature": 0.0}
    error = failure("/language/select", body, answer, select("x", ["a", "b"]))
    assert re.search(words, str(error)), error


def test_an_answer_without_scores_is_no_fault_of_the_users_method():
    body = {"choices": ["a", "b"], "method": "exact_sequence", "temperature": 0.0}
    node = select("x", ["a", "b"], choices_method=lambda scored: 0)
    assert "its answer has no 'choices'" in str(failure("/language/select", body, CHOSEN, node))


def test_an_answer_that_is_no_text_of_a_chat_is_an_error():
    @function
    def program(s: Any) -> None:
        s += user("Hi")

    prompt = [{"role": "user", "content": ["Hi"], "open": False}]
    call, error = Exchange("/language/render", {"prompt": prompt}, {}), "its answer has no 'text'"
    with Service(call) as service, pytest.raises(BackendError, match=error):
        program.run(backend=server(service), hints=False).text()


@pytest.mark.parametrize("given", ["127.0.0.1:30000", "gpt-4", ""])
def test_a_text_that_is_no_url_is_refused_at_its_line(given: str):
    program = function(lambda s: s.extend("a" + gen("x")))
    for refused in (lambda: Endpoint(given), lambda: program.run(backend=given)):
        with pytest.raises(
            ValueError, match=rf"^{re.escape(repr(given))} is not the URL of a server, .* begins with http://"
        ):
            refused()
