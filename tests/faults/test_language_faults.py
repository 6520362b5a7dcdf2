"""Programs whose backend goes away in the middle: nothing hangs, nothing is lost, and the last line says why."""

import os
import signal
import subprocess
import sys
import traceback

import psutil
import pytest
import requests
from live import Live

from ramet import LLM, BackendError, BatchFailed, CallFailed, Endpoint, function, gen

SCRIPTED = {"runner": "scripted", "context_length": 100_000, "max_total_tokens": 400_000}
ENDLESS = {"max_tokens": 50_000, "ignore_eos": True}


@function
def program(s, i):
    s += f"Number {i}: "
    if i % 2:
        s += gen("x", **ENDLESS)
    else:
        s += gen("x", max_tokens=4)


@function
def forked(s):
    s += "A prefix. " * 20
    forks = s.fork(50)
    forks += [str(i) for i in range(50)]
    forks += gen("x", **ENDLESS)
    forks.join()
    return s["x"]


def last_line(error):
    return traceback.format_exception(error)[-1].strip()


def num_running(url):
    [state] = requests.get(f"{url}/get_server_info", timeout=10).json()["internal_states"]
    return state["running_requests"]


def wait_until_running(url, num):
    while num_running(url) < num:
        pass


@pytest.mark.parametrize("role", ["scheduler", "server"])
def test_a_server_that_dies_ends_every_program_with_its_name(role: str):
    with Live(**SCRIPTED) as server:
        backend = Endpoint(server.url)
        batch = program.run_batch(
            [(i,) for i in range(40)], backend=backend, num_threads=40, generator_style=True, on_error="return"
        )
        first = next(batch)
        wait_until_running(server.url, 10)
        server.children()[role].kill()
        states = [first, *batch]
        assert len(states) == 40 and first["x"]
        failed = [state for state in states if state.error() is not None]
        assert len(failed) >= 20
        for state in failed:
            with pytest.raises(CallFailed) as caught:
                state["x"]
            assert isinstance(caught.value.reason, BackendError)
            line = last_line(caught.value)
            assert "gen('x')" in line and server.url in line and "Number " in line


def test_a_server_that_dies_ends_a_fork_and_the_body_that_waits():
    with Live(**SCRIPTED) as server:
        state = forked.run(backend=Endpoint(server.url), stream=True)
        wait_until_running(server.url, 20)
        server.process.kill()
        with pytest.raises(CallFailed):
            state["x"]
        assert isinstance(state.error(), CallFailed)
    with pytest.raises(CallFailed, match="Cannot connect"):
        forked.run(backend=Endpoint(server.url))


def test_an_llm_that_is_closed_ends_its_programs():
    llm = LLM(**SCRIPTED)
    state = forked.run(backend=llm, stream=True)
    while llm.state()["running_requests"] < 20:
        pass
    llm.close()
    with pytest.raises(CallFailed, match="closed"):
        state["x"]
    with pytest.raises(CallFailed, match="closed"):
        program.run(2, backend=llm)["x"]
    with pytest.raises(BatchFailed, match="closed"):
        program.run_batch([(0,), (2,)], backend=llm)


def test_the_others_calls_go_on_where_one_program_is_refused():
    with LLM(**SCRIPTED) as llm:
        states = too_long.run_batch([(i,) for i in range(20)], backend=llm, on_error="return")
        assert [state.error() is None for state in states] == [i != 7 for i in range(20)]
        with pytest.raises(CallFailed, match="must have at most 99999"):
            states[7]["x"]


@function
def too_long(s, i):
    s += "word " * (500_000 if i == 7 else 10) + gen("x", max_tokens=4)


RUNS = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits that it is ignored
from ramet import Endpoint, function, gen

@function
def program(s):
    s += "A prefix. " * 20
    forks = s.fork(5)
    forks += gen("x", max_tokens=50_000, ignore_eos=True)
    forks.join()
    print(s["x"])

program.run(backend=Endpoint(sys.argv[1]))
"""


def test_ctrl_c_ends_a_run_and_the_server_is_free_again():
    with Live(**SCRIPTED) as server:
        process = subprocess.Popen(
            [sys.executable, "-c", RUNS, server.url], stderr=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        wait_until_running(server.url, 5)
        process.send_signal(signal.SIGINT)
        _, words = process.communicate(timeout=30)
        assert process.returncode == -signal.SIGINT and words.rstrip().endswith("KeyboardInterrupt"), words
        assert not psutil.pid_exists(process.pid) or psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
        state = program.run(0, backend=Endpoint(server.url))
        assert state["x"]
        while num_running(server.url):
            pass
