"""How runs end: by an exit, a cancel, a timeout, an inner program, and what is still to be had of them."""

import asyncio
import gc
import os
import sys
import threading
import time
from typing import Any

import pytest

from ramet import Cancelled, Mock, ProgramError, RunTimeout, function, gen
from ramet.frontend.results import Gathered
from tests.fakes.services import Service


def waiting() -> Service:
    """Its calls are never answered."""
    service = Service()
    service.held = {"a", "inner"}
    return service


@function
def ask(s, word="a"):
    s += word + gen("x")
    return word


# -- what ends a process ----------------------------------------------------------------------------------------------


def exits(*_: Any) -> str:
    sys.exit(3)


async def awaits_and_exits(s):
    s += "a" + gen("x")
    await s["x"]
    sys.exit(3)


def test_an_exit_of_an_async_program_is_its_caller_s_and_others_run_on():
    program = function(awaits_and_exits)
    for _ in range(2):
        with pytest.raises(SystemExit):
            program.run(backend=Mock())
        with pytest.raises(SystemExit):
            asyncio.run(program.arun(backend=Mock()))
        assert ask.run(backend=Mock(["b"]))["x"] == "b"
    states = ask.run_batch([{"word": "a"}, {"word": "b"}], backend=Mock())
    assert [state.ret_value for state in states] == ["a", "b"]


def test_an_exit_of_a_backend_fails_its_call():
    state = ask.run(backend=Mock(exits))
    with pytest.raises(ProgramError, match="SystemExit: 3"):
        state["x"]
    assert ask.run(backend=Mock(["b"]))["x"] == "b"


# -- cancels and timeouts ---------------------------------------------------------------------------------------------


def test_a_finished_run_keeps_its_text_when_it_is_cancelled():
    state = ask.run(backend=Mock(["b"]))
    state.sync()
    state.cancel()
    assert (state.text(), state["x"], state.error()) == ("ab", "b", None)


def test_a_cancelled_run_makes_no_further_call():
    service = waiting()
    state = ask.run(backend=service)
    service.wait_for(1)
    state.cancel()
    state += "more" + gen("y")
    with pytest.raises(Cancelled):
        state["y"]
    assert isinstance(state.error(), Cancelled) and service.prompts == ["a"]


def test_a_timeout_bounds_programs_that_the_function_calls():
    @function
    def outer(s):
        return ask("inner")

    inner = outer.run(backend=waiting(), timeout_s=0.05).ret_value
    with pytest.raises(RunTimeout):
        inner["x"]


def test_a_timeout_ends_with_the_last_call():
    @function
    def outer(s):
        s += "a" + gen("x")
        ask("b")

    state = outer.run(backend=Mock(), timeout_s=600)
    state.sync()
    state.run.backend.loop.start(asyncio.sleep(0)).result()
    assert (limit := state.run._limit) is not None and limit.timer is not None and limit.timer.cancelled()


def test_sync_waits_for_inner_programs_on_threads_of_their_own():
    begun, go_on = threading.Event(), threading.Event()

    @function
    def inner(s):
        begun.set()
        go_on.wait(30)
        s += "a" + gen("x")

    @function
    def outer(s):
        inner.run(stream=True)

    backend = Mock()
    state = outer.run(backend=backend)
    begun.wait(30)
    waiting = threading.Thread(target=state.sync)
    waiting.start()
    assert backend.calls == [] and waiting.is_alive()
    go_on.set()
    waiting.join(30)
    assert len(backend.calls) == 1


# -- what async programs store and return -----------------------------------------------------------------------------


def test_a_value_that_an_async_program_stores_or_returns_is_the_value():
    @function
    async def program(s):
        forks = s.fork(2)
        forks += lambda i: f"{i}" + gen("x")
        s["copy"] = forks[0]["x"]
        return [forks[0]["x"], {"other": forks[1]["x"]}]

    state = program.run(backend=Mock(lambda prompt, call: f"<{prompt}>"))
    assert state["copy"] == "<0>" and state.ret_value == ["<0>", {"other": "<1>"}]


# -- what is no program -----------------------------------------------------------------------------------------------


def test_generators_are_no_programs_and_objects_that_are_called_are():
    def generator(s):
        yield s

    async def generator_too(s):
        yield s

    for function_ in (generator, generator_too):
        with pytest.raises(TypeError, match="has a yield"):
            function(function_)

    class Program:
        def __call__(self, s, word):
            s += word + gen("x")

    assert function(Program()).run("a", backend=Mock(["b"])).text() == "ab"


def test_parameters_of_a_run_reach_functions_with_parameters_of_their_names():
    @function
    def program(s, backend, stream, hints):
        s += f"{backend} {stream} {hints}" + gen("x")

    own = {"backend": Mock(["b"]), "stream": True, "hints": False}
    state = program.run("a", 1, 2, sampling_params=own)
    assert "".join(state.text_iter()) == "a 1 2b"


# -- streams ----------------------------------------------------------------------------------------------------------


def test_a_function_reads_its_own_variables_that_no_call_makes():
    read = []

    @function
    def program(s):
        with s.var_scope("line"):
            s += "a" + gen("x")
        s["set"] = "value"
        forks = s.fork(2)
        forks += gen("y")
        forks.join()
        for name in ("line", "set", "x", "y"):
            read.append("".join(s.text_iter(name)))
        with pytest.raises(KeyError):
            list(s.text_iter("unknown"))

    state = program.run(backend=Mock(lambda prompt, call: "b"), stream=True)
    state.sync()
    assert read == ["ab", "value", "b", "['b', 'b']"] and state.error() is None


def test_a_call_behind_a_fork_of_the_process_names_the_process(monkeypatch: pytest.MonkeyPatch):
    """An event loop's thread stays with the process that started it."""
    loop, pid = Mock().loop, os.getpid()
    monkeypatch.setattr("ramet.ipc.loop_thread.os.getpid", lambda: pid + 1)
    assert str(loop.closed_error()) == f"The event loop is one of process {pid}."


def test_many_joins_take_as_many_callbacks_as_there_are_values():
    @function
    def program(s):
        for _ in range(300):
            forks = s.fork(2)
            forks += gen("x")
            forks.join()
        return s["x"]

    num_lists = _num_lists()
    state = program.run(backend=Mock(lambda prompt, call: "v"))
    assert state.ret_value == ["v"] * 600
    assert len(state.get_meta_info("x")) == 600
    assert _num_lists() <= num_lists + 1, "lists of earlier joins are kept, which are the last one's beginnings"


def _num_lists() -> int:
    gc.collect()
    return sum(isinstance(each, Gathered) for each in gc.get_objects())


@pytest.mark.parametrize("resumed", [False, True])
def test_the_time_of_a_run_that_had_a_batch_ends_with_its_calls(tmp_path, resumed):
    @function
    def inner(s, word):
        s += word + gen("x")

    @function
    def outer(s):
        s += "q" + gen("x")
        inner.run_batch([("a",), ("b",)], resume=tmp_path / "file" if resumed else None)

    for _ in range(2):  # the second finds its programs in the file
        state = outer.run(backend=Mock(), timeout_s=0.3)
        state.sync()
        time.sleep(0.6)
        state += " more" + gen("y")
        assert state["y"]
