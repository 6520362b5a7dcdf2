"""Objects that own something running refuse to be copied; objects that only know a service's address can be copied."""

import copy
import gc
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from exchanges import Exchange, Service

from ramet import LLM, Endpoint, Mock, OpenAI, Replay, assistant, function, gen, user
from ramet.frontend.backends.inprocess import InProcess

WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
}  # fmt: skip


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(runner="scripted", max_total_tokens=1024) as made:
        yield made


@function
def program(s: Any) -> None:
    s += "a" + gen("x", max_tokens=3)


def owners(llm: LLM, folder: Path) -> dict[str, Any]:
    state = program.run(backend=llm)
    (folder / "entries.jsonl").touch()
    return {
        "LLM": llm, "ProgramCalls": llm.language, "LoopThread": llm.loop, "State": state, "StateGroup": state.fork(2),
        "Replay": Replay(folder / "entries.jsonl"),
    }  # fmt: skip


@pytest.mark.parametrize("how", WAYS)
def test_what_owns_something_that_runs_refuses_in_words(llm: LLM, how: str, tmp_path: Path) -> None:
    for name, owner in owners(llm, tmp_path).items():
        with pytest.raises(TypeError, match=f"^{name} cannot be copied or pickled: it"):
            WAYS[how](owner)


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_what_holds_an_engine_names_it(llm: LLM, how: str) -> None:
    for holder in ({"model": llm}, InProcess(llm)):
        with pytest.raises(TypeError, match=r"cannot be copied or pickled: its? "):
            WAYS[how](holder)


def test_a_stream_that_runs_cannot_be_copied(llm: LLM) -> None:
    stream = llm.stream("a", {"max_new_tokens": 3})
    next(stream)
    for copied in WAYS.values():
        with pytest.raises(TypeError, match="cannot pickle 'generator' object"):
            copied(stream)
    stream.close()


@pytest.mark.parametrize("how", WAYS)
def test_a_copied_engine_is_not_closed_with_its_copy(llm: LLM, how: str) -> None:
    with pytest.raises(TypeError):
        WAYS[how](llm)
    assert llm.generate("a", {"max_new_tokens": 2})[0]["meta_info"]["completion_tokens"] == 2


@pytest.mark.parametrize("how", WAYS)
def test_a_backend_that_was_used_is_copied_with_a_session_of_its_own(how: str) -> None:
    fine = {"choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "stop"}]}
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
    with Service(*[Exchange("/v1/chat/completions", body, fine) for _ in range(3)]) as service:
        first = OpenAI("m", base_url=service.url + "/v1", flavor="compatible")
        assert ask.run(backend=first)["answer"] == "Hello"
        second = WAYS[how](first)
        assert ask.run(backend=second)["answer"] == "Hello"
        del first
        gc.collect()
        assert ask.run(backend=second)["answer"] == "Hello"


@function
def ask(s: Any) -> None:
    s += user("Hi") + assistant(gen("answer", max_tokens=5))


@pytest.mark.parametrize("how", WAYS)
def test_a_backend_that_was_not_used_is_copied(how: str) -> None:
    assert WAYS[how](Endpoint("http://127.0.0.1:9")).base_url == "http://127.0.0.1:9"
    assert program.run(backend=WAYS[how](Mock(replies=["b"])))["x"] == "b"
