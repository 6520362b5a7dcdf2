"""JSON over HTTP for backends: when a call is tried again, and what its failures say."""

import os
from typing import Any

import pytest
from aiohttp import web
from exchanges import Act, Exchange, Service, closed, cut, events, raw, reset, silent

from ramet import BackendError, CallFailed, OpenAI, assistant, function, gen, user
from ramet.frontend.backends import http

PATH = "/v1/chat/completions"
HI: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
FINE = {"choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "stop"}]}


@function
def ask(s: Any) -> None:
    s += user("Hi") + assistant(gen("answer", max_tokens=5))


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(http, "LONGEST_WAIT_S", 0.002)


def model(service: Service, **arguments: Any) -> OpenAI:
    return OpenAI("m", base_url=service.url + "/v1", flavor="compatible", **arguments)


def exchanges(*answers: Any, streaming: bool = False) -> list[Exchange]:
    return [Exchange(PATH, {**HI, **(STREAMED if streaming else {})}, answer) for answer in answers]


def busy(status: int, **headers: str) -> Act:
    return raw('{"error": {"message": "slow down"}}', status, headers, "application/json")


def failure(*answers: Any, streaming: bool = False, **arguments: Any) -> BackendError:
    with Service(*exchanges(*answers, streaming=streaming)) as service:
        state = ask.run(backend=model(service, **arguments), stream=streaming)
        with pytest.raises(CallFailed):
            state["answer"]
        reason = state.error().reason
    assert isinstance(reason, BackendError)
    return reason


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504, 529])
@pytest.mark.parametrize("streaming", [False, True])
def test_a_busy_service_is_asked_again(status: int, streaming: bool):
    fine: Any = FINE
    if streaming:
        fine = events({"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}]})
    answers = [busy(status), busy(status, **{"Retry-After": "0"}), fine]
    with Service(*exchanges(*answers, streaming=streaming)) as service:
        assert ask.run(backend=model(service), stream=streaming)["answer"] == "Hello"
        assert len(service.requests) == 3


def test_a_service_that_stays_busy_is_left_after_some_tries():
    error = failure(*[busy(429)] * http.TRIES)
    assert error.status == 429
    assert str(error) == "OpenAI('m'): slow down (HTTP 429)"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 500, 501])
def test_other_errors_are_told_at_once(status: int):
    assert failure(busy(status)).status == status


@pytest.mark.parametrize(
    ("said", "wait_s", "least", "most"),
    [
        ({"Retry-After": "3"}, 1.0, 3.0, 3.0),
        ({"Retry-After": "0"}, 1.0, 0.0, 0.0),
        ({"Retry-After": "1000"}, 1.0, 8.0, 8.0),
        ({"Retry-After": "-1"}, 1.0, 0.0, 0.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, 1.0, 0.5, 1.0),
        ({}, 4.0, 2.0, 4.0),
    ],
)
def test_the_wait_is_what_the_service_says(
    said: dict[str, str], wait_s: float, least: float, most: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http, "LONGEST_WAIT_S", 8.0)
    for _ in range(20):
        assert least <= http.pause_s(said, wait_s) <= most


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error": {"message": "one"}}', "one"),
        ('{"error": "two"}', "two"),
        ('{"message": "three"}', "three"),
        ('{"detail": [{"msg": "four"}]}', "{'msg': 'four'}"),
        ('{"type": "error", "error": {"type": "x", "message": "five"}}', "five"),
        ('[{"error": {"code": 400, "message": "six"}}]', "six"),
        ("<html><body>nginx</body></html>", "<html><body>nginx</body></html>"),
        ("x" * 5000, "x" * http.MAX_SHOWN),
        ("{}", "{}"),
        ("", "Bad Request"),
    ],
)
def test_an_error_is_in_the_services_words(body: str, message: str):
    assert str(failure(raw(body, 400))) == f"OpenAI('m'): {message} (HTTP 400)"


@pytest.mark.parametrize("lost", [closed, reset])
def test_a_connection_that_was_closed_is_opened_again(lost: Act):
    with Service(*exchanges(lost, FINE)) as service:
        assert ask.run(backend=model(service))["answer"] == "Hello"


def test_a_service_that_closes_each_connection_is_an_error():
    assert "ServerDisconnectedError" in str(failure(closed, closed))
    assert "ClientOSError" in str(failure(reset, reset))


def test_a_fork_of_the_process_opens_connections_of_its_own():
    with Service(*exchanges(FINE, FINE, FINE)) as service:
        backend = model(service)
        assert ask.run(backend=backend)["answer"] == "Hello"
        if (child := os.fork()) == 0:
            said = "nothing"
            try:
                said = ask.run(backend=backend, timeout_s=30)["answer"]
            finally:
                os._exit(0 if said == "Hello" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert ask.run(backend=backend, timeout_s=30)["answer"] == "Hello"


def test_a_service_elsewhere_is_asked_by_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch):
    with Service(*exchanges(FINE)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        backend = OpenAI("m", base_url="http://models.invalid/v1", flavor="compatible")
        assert ask.run(backend=backend)["answer"] == "Hello"


def test_a_service_of_this_machine_is_asked_directly(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with Service(*exchanges(FINE)) as service:
        assert ask.run(backend=model(service))["answer"] == "Hello"
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "models.invalid")
    assert http.proxy_of("https://models.invalid/v1") is None
    assert http.proxy_of("https://others.invalid/v1") == "http://127.0.0.1:9"
    assert http.proxy_of("https://localhost/v1") is None


@pytest.mark.parametrize("streaming", [False, True])
def test_a_service_that_does_not_answer_is_left_in_time(streaming: bool):
    assert "did not answer in time" in str(failure(silent, streaming=streaming, timeout_s=0.2))


def test_a_stream_that_stands_still_is_left_in_time():
    async def stalled(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'data: {"choices": [{"index": 0, "delta": {"content": "Hel"}}]}\n\n')
        await silent(request)
        return response

    assert "did not answer in time" in str(failure(stalled, streaming=True, timeout_s=0.3))


@pytest.mark.parametrize("streaming", [False, True])
def test_the_wait_for_a_free_connection_is_no_part_of_a_try(streaming: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 1)
    fine = events({"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}]})
    with Service(*exchanges(silent, fine if streaming else FINE, streaming=streaming)) as service:
        backend = model(service, timeout_s=1.0)
        first, second = (ask.run(backend=backend, stream=streaming) for _ in range(2))
        assert {str(state.error()) for state in (first, second)} & {"None"}, "the one that waited has its whole time"
        assert len(service.requests) == 2


def test_a_call_that_waits_for_a_busy_service_keeps_no_connection(monkeypatch: pytest.MonkeyPatch):
    @function
    def another(s: Any) -> None:
        s += user("Ho") + assistant(gen("answer", max_tokens=5))

    monkeypatch.setattr(http, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(http, "LONGEST_WAIT_S", 60.0)
    other = Exchange(PATH, {**HI, "messages": [{"role": "user", "content": "Ho"}]}, FINE)
    with Service(*exchanges(busy(429, **{"Retry-After": "60"})), other) as service:
        backend = model(service)
        waiting = ask.run(backend=backend)
        while not service.requests:
            pass
        assert another.run(backend=backend, timeout_s=30)["answer"] == "Hello"
        waiting.cancel()


@pytest.mark.parametrize("text", ["<html>", "{broken", '{"choices": [', "\xff"])
def test_an_answer_that_is_no_json_is_an_error(text: str):
    assert "its answer is not JSON" in str(failure(raw(text)))


def test_an_answer_that_is_empty_is_an_error():
    assert "its answer is not an object" in str(failure(raw("")))


def test_a_stream_that_is_cut_is_no_result():
    error = failure(cut({"choices": [{"index": 0, "delta": {"content": "Hel"}}]}), streaming=True)
    assert "ClientPayloadError" in str(error) or "ended before" in str(error)


def test_a_stream_of_any_line_ends_and_comments_is_read():
    text = (
        ': a comment\r\nevent: x\r\ndata: {"choices": [{"index": 0,\r\ndata: "delta": {"content": "Hel"}}]}\r\n\r\n'
        'data:{"choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": "stop"}]}'
    )
    answer = raw(text, kind="text/event-stream")
    with Service(*exchanges(answer, streaming=True)) as service:
        assert ask.run(backend=model(service), stream=True)["answer"] == "Hello"


def test_an_event_may_be_very_large():
    words = "word " * 400_000
    answer = events({"choices": [{"index": 0, "delta": {"content": words}, "finish_reason": "stop"}]})
    with Service(*exchanges(answer, streaming=True)) as service:
        assert ask.run(backend=model(service), stream=True)["answer"] == words


def test_a_call_that_is_cancelled_leaves_the_service():
    with Service(*exchanges(silent, FINE)) as service:
        backend = model(service)
        state = ask.run(backend=backend, timeout_s=0.2)
        with pytest.raises(TimeoutError):
            state["answer"]
        assert ask.run(backend=backend)["answer"] == "Hello"
