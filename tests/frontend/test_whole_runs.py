"""A program is done when all of its calls are, forks and inner programs included, and what went wrong in it is told."""

import asyncio
import gc
import threading

import pytest

from ramet import BatchFailed, CallFailed, Cancelled, function, gen
from tests.fakes.services import Service


def forked(s, words):
    """Nobody reads what comes of the forks."""
    forks = s.fork(len(words))
    forks += words
    forks += gen("x")
    forks.join()


@function
def plain(s, words):
    forked(s, words)


@function
async def running(s, words):
    forked(s, words)


@function
def outer(s, words):
    plain(words)


BOTH = pytest.mark.parametrize("program", [plain, running, outer], ids=["plain", "async", "inner"])


@BOTH
@pytest.mark.parametrize("wait", [lambda *args: args[0].run(args[1], backend=args[2]).sync(),
                                  lambda *args: asyncio.run(args[0].arun(args[1], backend=args[2]))])  # fmt: skip
def test_whoever_waits_for_a_run_waits_for_its_forks(program, wait):
    service = Service()
    service.held = {"slow"}
    waiting = threading.Thread(target=wait, args=(program, ["slow", "fast"], service))
    waiting.start()
    service.wait_for(2)
    waiting.join(0.1)
    assert waiting.is_alive()
    service.let_go()
    waiting.join(30)
    assert not waiting.is_alive() and service.num_running == 0


@BOTH
def test_a_batch_runs_no_more_programs_at_once_than_it_was_told(program):
    service = Service()
    states = program.run_batch([(["a", "b"],)] * 40, backend=service, num_threads=3)
    assert service.num_running == 0 and len(service.prompts) == 80 and len(states) == 40
    assert service.most_running <= 6


@BOTH
def test_a_failed_fork_is_a_failure_of_its_program(program, tmp_path):
    service = Service()
    service.failing = {"bad"}
    error = program.run(["good", "bad"], backend=service).error()
    assert isinstance(error, CallFailed) and "bad" in str(error)
    batch = [(["good"],), (["bad", "good"],), (["good"],)]
    with pytest.raises(BatchFailed, match=r"batch_kwargs\[1\].*out of order"):
        program.run_batch(batch, backend=service)
    states = program.run_batch(batch, backend=service, on_error="return", resume=tmp_path / "results")
    assert [state.error() is None for state in states] == [True, False, True]
    service.failing, service.prompts = set(), []
    again = program.run_batch(batch, backend=service, resume=tmp_path / "results")
    assert len(service.prompts) == 2, "only the one that failed runs again"
    assert [state.error() for state in again] == [None] * 3


def test_a_failure_that_the_function_was_told_of_is_its_own_matter(tmp_path):
    @function
    def program(s):
        forks = s.fork(2)
        forks += ["bad", "good"]
        forks += gen("x")
        forks.join()
        try:
            s["found"] = s["x"]
        except CallFailed:
            s["found"] = forks[1]["x"]

    service = Service()
    service.failing = {"bad"}
    (state,) = program.run_batch([()], backend=service, resume=tmp_path / "results")
    assert state["found"] == "<4>" and state.error() is None
    program.run_batch([()], backend=service, resume=tmp_path / "results")
    assert service.prompts.count("good") == 2, "one of its values is missing, so it runs again"


def in_a_fork(s):
    (fork,) = s.fork(1)
    fork += "bad" + gen("y")
    return fork


def in_a_program(s):
    @function
    def inner(s):
        s += "bad" + gen("y")

    return inner()


@pytest.mark.parametrize("made", [in_a_fork, in_a_program])
def test_a_run_that_handled_a_failed_call_is_run_again(tmp_path, made):
    @function
    def program(s):
        s += "good" + gen("x")
        try:
            return made(s)["y"]
        except CallFailed:
            return "fallback"

    service = Service(lambda text: "fine")
    service.failing = {"bad"}
    for returned, num_calls in (("fallback", 2), ("fine", 4), ("fine", 4)):
        (state,) = program.run_batch([()], backend=service, resume=tmp_path / "results")
        assert state.error() is None and state.ret_value == returned
        assert len(service.prompts) == num_calls
        service.failing = set()


def test_of_forks_that_all_fail_the_list_is_told_of_once():
    @function
    def program(s):
        forks = s.fork(3)
        forks += ["bad", "bad", "bad"]
        forks += gen("x")
        forks.join()
        with pytest.raises(CallFailed):
            s["x"]

    service = Service()
    service.failing = {"bad"}
    assert program.run(backend=service).error() is None


def test_a_value_that_is_appended_elsewhere_tells_nobody_of_its_failure():
    @function
    async def appending(s):
        first, second = s.fork(2)
        first += "bad" + gen("x")
        second += first["x"]

    service = Service()
    service.failing = {"bad"}
    error = appending.run(backend=service).error()
    assert isinstance(error, CallFailed) and "out of order" in str(error)


def test_a_program_that_ends_an_inner_one_is_not_said_to_fail():
    @function
    def inner(s):
        s += "slow" + gen("x")

    @function
    def racing(s):
        late = inner()
        s.run.backend.wait_for(1)
        late.cancel()
        late.sync()

    service = Service()
    service.held = {"slow"}
    assert racing.run(backend=service).error() is None


def test_a_run_that_was_cancelled_says_so_where_only_forks_had_calls():
    service = Service()
    service.held = {"slow"}
    state = plain.run(["slow", "slow"], backend=service)
    service.wait_for(2)
    state.cancel()
    assert isinstance(state.error(), Cancelled)
    assert isinstance(state.error(), Cancelled), "asked twice, the same answer"


def test_a_run_with_a_time_leaves_no_timer_behind():
    service = Service()

    async def timers() -> int:
        await asyncio.sleep(0)
        return sum(not each.cancelled() for each in asyncio.get_running_loop()._scheduled)

    before = service.loop.start(timers()).result()
    for _ in range(50):
        plain.run(["a"], backend=service, timeout_s=3600).sync()
    gc.collect()
    assert service.loop.start(timers()).result() < before + 50
