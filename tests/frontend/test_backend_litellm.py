"""LiteLLM: what its library is asked for. A module that stands for the library answers as written."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from interview import CLOSED, FORKS, JSON, SYSTEM, check, interview, turns

from ramet import BackendError, CallFailed, LiteLLM, Unsupported, assistant, function, gen, user
from ramet.frontend.backends import http


class Library(ModuleType):
    """`expected`: (arguments of acompletion, answer) in any order. An exception is raised, a list is streamed."""

    def __init__(self, *expected: tuple[dict[str, Any], Any]) -> None:
        super().__init__("litellm")
        self.left = list(expected)

    async def acompletion(self, **arguments: Any) -> Any:
        found = [each for each in self.left if each[0] == arguments]
        assert found, f"{arguments} was asked, of {self.left}"
        self.left.remove(found[0])
        answer = found[0][1]
        if isinstance(answer, Exception):
            raise answer
        return stream(answer) if isinstance(answer, list) else dumped(answer)


def dumped(value: Any) -> Any:
    """As the library's answers are: objects that give their values."""
    return SimpleNamespace(model_dump=lambda: value)


async def stream(parts: list[Any]) -> Any:
    for part in parts:
        if isinstance(part, Exception):
            raise part
        yield dumped(part)


def whole(text: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "x", "choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}


def pieces(*texts: str) -> list[Any]:
    found = [
        {"id": "x", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]} for text in texts
    ]
    return [*found, {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]


def model(monkeypatch: pytest.MonkeyPatch, *expected: tuple[dict[str, Any], Any]) -> tuple[LiteLLM, Library]:
    library = Library(*expected)
    monkeypatch.setitem(sys.modules, "litellm", library)
    return LiteLLM("groq/llama", api_key="k"), library


SAME = {"model": "groq/llama", "api_key": "k"}
HI = {**SAME, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}


@function
def ask(s: Any, **arguments: Any) -> None:
    s += user("Hi") + assistant(gen("answer", max_tokens=5, **arguments))


def messages(num: int, *more: str) -> list[dict[str, str]]:
    said = [("system", SYSTEM), *turns(num), *(("user", text) for text in more)]
    return [{"role": role, "content": text} for role, text in said]


def schema(value: dict[str, Any]) -> dict[str, Any]:
    named = {"name": "answer", "strict": True, "schema": value}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def one(**value: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"value": value}, "required": ["value"], "additionalProperties": False}


@pytest.mark.parametrize("streaming", [False, True])
def test_the_interview(streaming: bool, monkeypatch: pytest.MonkeyPatch):
    def free(arguments: dict[str, Any], *texts: str) -> tuple[dict[str, Any], Any]:
        if streaming:
            return {**SAME, **arguments, **STREAMED}, pieces(*texts)
        return {**SAME, **arguments}, whole("".join(texts))

    choice = schema(one(type="string", enum=["yes", "no"]))
    backend, library = model(
        monkeypatch,
        free({"messages": messages(0), "max_tokens": 16, "stop": ["."]}, "Pa", "ris"),
        (
            {**SAME, "messages": messages(1), "max_tokens": 1024, "temperature": 0.0, **choice},
            whole('{"value": "yes"}'),
        ),
        (
            {**SAME, "messages": messages(2), "max_tokens": 32, **schema(one(type="integer"))},
            whole('{"value": 2100000}'),
        ),
        free({"messages": messages(3), "max_tokens": 64, **schema(CLOSED)}, JSON),
        free({"messages": messages(4, FORKS[0]), "max_tokens": 8}, "Seine"),
        free({"messages": messages(4, FORKS[1]), "max_tokens": 8}, "che", "ese"),
    )
    check(interview.run(backend=backend, stream=streaming))
    assert library.left == []


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(http, "LONGEST_WAIT_S", 0.002)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_busy_service_is_asked_again(streaming: bool, monkeypatch: pytest.MonkeyPatch):
    class Overloaded(Exception):
        status_code = 503
        response = SimpleNamespace(headers={"Retry-After": "0"})

    asked = {**HI, **STREAMED} if streaming else HI
    fine: Any = pieces("Hel", "lo") if streaming else whole("Hello")
    backend, library = model(monkeypatch, (asked, Overloaded("busy")), (asked, Overloaded("busy")), (asked, fine))
    assert ask.run(backend=backend, stream=streaming)["answer"] == "Hello"
    assert library.left == []


def test_an_error_of_the_library_keeps_its_status(monkeypatch: pytest.MonkeyPatch):
    class RateLimitError(Exception):
        status_code = 429

    busy = [(HI, RateLimitError("slow down"))] * http.TRIES
    backend, _ = model(monkeypatch, *busy, ({**HI, **STREAMED}, [ValueError("broken")]))
    state = ask.run(backend=backend)
    with pytest.raises(CallFailed, match=r"LiteLLM\('groq/llama'\): slow down \(HTTP 429\)"):
        state["answer"]
    reason = state.error().reason
    assert isinstance(reason, BackendError) and reason.status == 429
    with pytest.raises(CallFailed, match="broken"):
        ask.run(backend=backend, stream=True)["answer"]


def test_a_stream_that_ends_early_is_no_result(monkeypatch: pytest.MonkeyPatch):
    backend, _ = model(monkeypatch, ({**HI, **STREAMED}, pieces("Hel")[:1]))
    with pytest.raises(CallFailed, match="the answer ended before the output did"):
        ask.run(backend=backend, stream=True)["answer"]


def test_an_error_in_an_answer_is_told_once(monkeypatch: pytest.MonkeyPatch):
    backend, _ = model(monkeypatch, (HI, {"error": {"message": "broken", "code": 500}}))
    state = ask.run(backend=backend)
    state.sync()
    assert str(state.error().reason) == "LiteLLM('groq/llama'): broken (HTTP 500)"


def test_what_no_provider_has_is_refused(monkeypatch: pytest.MonkeyPatch):
    backend, _ = model(monkeypatch)
    with pytest.raises(Unsupported, match=r"top_k: LiteLLM\('groq/llama'\) has no such parameter"):
        ask.run(backend=backend, top_k=3)


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(ImportError, match="pip install litellm"):
        LiteLLM("groq/llama")
