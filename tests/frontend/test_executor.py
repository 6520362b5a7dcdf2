"""Streams: operations in order, values when they are there, failures where a value is used."""

import asyncio
import gc
import logging
import threading
import weakref
from pathlib import Path

import pytest

from ramet import BackendError, CallFailed, Cancelled, ProgramError, RunTimeout, function, gen, select
from ramet.frontend.backends.mock import Mock
from tests.fakes.services import Service


def test_calls_of_one_state_run_in_order_and_see_what_came_before():
    service = Service(lambda text: "ab"[len(text) % 2])

    @function
    def program(s):
        s += "x" + gen("one") + "-" + gen("two") + select("three", ["p", "q"])

    state = program.run(backend=service)
    assert state.text() == "xb-bq"
    assert service.prompts == ["x", "xb-", "xb-b"]


def test_appending_does_not_wait_for_calls():
    service = Service()
    service.held = {"slow"}

    @function
    def program(s):
        s += "slow" + gen("x")
        s += " and more"
        return "done"

    state = program.run(backend=service)
    assert state.ret_value == "done"
    service.wait_for(1)
    service.let_go()
    assert state.text() == "slow<4> and more"


def test_forks_run_at_once_while_their_parent_waits():
    service = Service()
    service.held = {"q"}

    @function
    def program(s):
        s += "q"
        forks = s.fork(5)
        forks += gen("x")
        service.wait_for(5)
        service.let_go()
        return [f["x"] for f in forks]

    assert program.run(backend=service).ret_value == ["<1>"] * 5
    assert service.most_running == 5


def test_a_fork_of_a_thousand_has_every_value_and_shares_the_prompt():
    service = Service(lambda text: text[-4:])

    @function
    def program(s):
        s += "a long prefix " * 1000
        forks = s.fork(1000)
        forks += [f"{i:04}" for i in range(1000)]
        forks += gen("x")
        forks.join()

    state = program.run(backend=service)
    assert state["x"] == [f"{i:04}" for i in range(1000)]
    assert sum(len(prompt) for prompt in service.prompts) == 1000 * (14_000 + 4)


def test_a_second_join_of_the_same_name_makes_the_list_longer():
    @function
    def program(s):
        for round in "ab":
            forks = s.fork(2)
            forks += [round + "0", round + "1"]
            forks += gen("x")
            forks.join()

    assert program.run(backend=Service(lambda text: text)).ret_value is None
    assert program.run(backend=Service(lambda text: text))["x"] == ["a0", "a1", "b0", "b1"]


def test_joined_texts_follow_each_other_where_contexts_are_not_computed_apart():
    @function
    def program(s):
        s += "Read: "
        forks = s.fork(2)
        forks += ["one. ", "two. "]
        forks.join("concate_and_append")
        s += "So " + gen("x")

    service = Service()
    assert program.run(backend=service)["x"] == "<19>"
    assert service.prompts == ["Read: one. two. So "]


def test_a_failure_names_the_variable_the_line_the_cause_and_the_end_of_the_prompt():
    service = Service()
    service.failing = {"bad"}

    @function
    def program(s):
        s += "This is bad" + gen("x")  # the line that is named
        s += gen("y")

    state = program.run(backend=service)
    with pytest.raises(CallFailed) as caught:
        state["x"]
    words = str(caught.value)
    assert "gen('x')" in words and "test_executor.py:" in words and "in program" in words
    assert "is out of order (HTTP 500)" in words and "'This is bad'" in words and "\n" not in words
    assert isinstance(caught.value.__cause__, BackendError)
    line = caught.value.where.line
    assert "the line that is named" in Path(__file__).read_text().splitlines()[line - 1]


def test_what_follows_a_failure_says_what_failed_before_it():
    service = Service()
    service.failing = {"bad"}

    @function
    def program(s):
        s += "bad" + gen("x")
        s += gen("y")

    state = program.run(backend=service)
    with pytest.raises(
        CallFailed, match=r"gen\('y'\).*was not run, for a call before it failed: gen\('x'\).*out of order"
    ):
        state["y"]
    assert service.prompts == ["bad"]
    assert isinstance(state.error(), CallFailed)
    with pytest.raises(CallFailed):
        state.text()


def test_a_failing_fork_fails_its_own_values_only():
    service = Service()
    service.failing = {"1"}

    @function
    def program(s):
        forks = s.fork(3)
        forks += ["0", "1", "2"]
        forks += gen("x")
        forks.join()
        return [f.error() is None for f in forks]

    state = program.run(backend=service)
    assert state.ret_value == [True, False, True]
    with pytest.raises(CallFailed, match="out of order"):
        state["x"]
    assert state.error() is None


def test_an_error_is_raised_anew_each_time_without_growing():
    service = Service()
    service.failing = {"bad"}

    @function
    def program(s):
        s += "bad" + gen("x")

    state = program.run(backend=service)
    depths = []
    for _ in range(3):
        with pytest.raises(CallFailed) as caught:
            state["x"]
        depths.append(len(caught.traceback))
    assert depths[0] == depths[1] == depths[2]


def test_a_failure_that_nobody_saw_is_logged(caplog):
    service = Service()
    service.failing = {"bad"}

    @function
    def program(s):
        s += "bad" + gen("x")

    state = program.run(backend=service)
    state.sync()
    with caplog.at_level(logging.WARNING, "ramet"):
        del state
        for _ in range(3):  # the event loop lets go of its task
            service.loop.start(asyncio.sleep(0)).result()
        gc.collect()
    assert "nobody asked" in caplog.text and "out of order" in caplog.text


def test_a_body_that_raises_ends_its_calls_and_raises_from_run():
    service = Service()
    service.held = {"x"}
    seen = []

    @function
    def program(s):
        s += "x" + gen("a")
        seen.append(s)
        service.wait_for(1)
        raise ZeroDivisionError("in the middle")

    with pytest.raises(ZeroDivisionError, match="in the middle"):
        program.run(backend=service)
    with pytest.raises(Cancelled, match="cancelled"):
        seen[0]["a"]
    assert service.num_running == 0


def test_cancel_ends_what_waits_and_what_comes():
    service = Service()
    service.held = {"x"}

    @function
    def program(s):
        s += "x"
        forks = s.fork(3)
        forks += gen("a")
        s += gen("b")
        forks.join()

    state = program.run(backend=service)
    service.wait_for(4)
    state.cancel()
    for name in "ab":
        with pytest.raises(Cancelled):
            state[name]
    state += gen("c")
    with pytest.raises(Cancelled):
        state["c"]
    assert service.num_running == 0


def test_cancel_reaches_programs_that_the_body_called():
    service = Service()
    service.held = {"inner"}
    inner_state = []

    @function
    def inner(s):
        s += "inner" + gen("x")

    @function
    def outer(s):
        inner_state.append(inner())
        service.wait_for(1)
        s.cancel()

    outer.run(backend=service)
    with pytest.raises(Cancelled):
        inner_state[0]["x"]


def test_a_run_that_takes_too_long_is_ended_where_its_value_is_used():
    service = Service()
    service.held = {"x"}

    @function
    def program(s):
        s += "x" + gen("a")
        return s["a"]

    with pytest.raises(RunTimeout, match=r"within 0\.05 s") as caught:
        program.run(backend=service, timeout_s=0.05)
    assert isinstance(caught.value, TimeoutError)
    assert service.num_running == 0


def test_a_name_that_is_no_variable_says_which_there_are():
    @function
    def program(s):
        s += gen("known") + gen()

    with pytest.raises(KeyError, match="'unknown' is not a variable of this state: there are known, gen_0"):
        program.run(backend=Service())["unknown"]


def test_a_value_of_another_thread_is_awaited_while_the_body_comes_to_it():
    service = Service()
    go = threading.Event()

    @function
    def program(s):
        go.wait()
        s += "x" + gen("late")

    state = program.run(backend=service, stream=True)
    threading.Timer(0.01, go.set).start()
    assert state["late"] == "<1>"


def test_a_body_on_another_thread_that_raises_is_heard_by_whoever_reads():
    @function
    def program(s):
        s += "x"
        raise ZeroDivisionError("in the thread")

    state = program.run(backend=Service(), stream=True)
    with pytest.raises(ZeroDivisionError):
        list(state.text_iter())
    with pytest.raises(ZeroDivisionError):
        state["x"]
    assert isinstance(state.error(), ZeroDivisionError)


def test_a_body_that_asks_for_what_it_never_appended_does_not_hang():
    @function
    def program(s):
        return s["never"]

    with pytest.raises(KeyError, match="never"):
        program.run(backend=Service())
    state = program.run(backend=Service(), stream=True)
    assert isinstance(state.error(), KeyError)


def test_pieces_come_as_they_are_made_for_each_of_several_readers():
    service = Service(lambda text: "abc")

    @function
    def program(s):
        s += "x" + gen("one") + "y" + gen("two", max_tokens=3)

    state = program.run(backend=service, stream=True)
    assert list(state.text_iter()) == ["x", "a", "b", "c", "y", "a", "b", "c"]
    assert list(state.text_iter("two")) == ["a", "b", "c"]

    async def read():
        return [piece async for piece in state.text_async_iter("one", return_meta_data=True)]

    pieces = asyncio.run(read())
    assert "".join(text for text, _ in pieces) == "abc"
    assert pieces[-1][1] == {"finish_reason": {"type": "stop"}}
    with pytest.raises(KeyError):
        list(state.text_iter("three"))


def test_a_stream_that_fails_raises_at_its_end():
    service = Service()
    service.failing = {"bad"}

    @function
    def program(s):
        s += "bad" + gen("x")

    state = program.run(backend=service, stream=True)
    got = []
    with pytest.raises(CallFailed):
        for piece in state.text_iter():
            got.append(piece)
    assert got == ["bad"]


def test_async_programs_await_values_and_append_them_as_they_are():
    service = Service(lambda text: text.upper()[-1])

    @function
    async def child(p, letter):
        p += letter + gen("x")

    @function
    async def program(p):
        tasks = [child(letter) for letter in "abc"]
        p += "z"
        forks = p.fork(2)
        forks += ["v", "w"]
        forks += gen("y")
        p += "(" + forks[0]["y"] + await forks[1]["y"] + ")"
        return [(await task)["x"] for task in tasks]

    state = program.run(backend=service)
    assert state.ret_value == ["A", "B", "C"]
    assert state.text() == "z(VW)"

    async def several():
        return await asyncio.gather(*(program.arun(backend=service) for _ in range(20)))

    assert {each.text() for each in asyncio.run(several())} == {"z(VW)"}


def test_an_async_program_is_read_as_it_grows():
    service = Service(lambda text: "abc")
    service.held = {"x"}

    @function
    async def program(p):
        p += "x" + gen("one")
        p += "y" + gen("two") if await p["one"] == "abc" else "z"

    state = program.run(backend=service, stream=True)
    pieces = state.text_iter()
    assert next(pieces) == "x"
    service.let_go()
    assert "".join(pieces) == "abcyabc" and state["two"] == "abc" and state.text() == "xabcyabc"


def test_a_plain_program_may_be_awaited():
    service = Service()

    @function
    def program(s):
        s += "x" + gen("a")
        assert s["a"] == "<1>"

    async def run():
        state = await program.arun(backend=service)
        return state["a"], await state.text_async()

    assert asyncio.run(run()) == ("<1>", "x<1>")


def test_cancelling_an_awaited_run_ends_its_calls():
    service = Service()
    service.held = {"x"}

    @function
    async def program(p):
        p += "x" + gen("a")
        await p["a"]

    async def run():
        task = asyncio.create_task(program.arun(backend=service))
        await asyncio.to_thread(service.wait_for, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    service.loop.start(asyncio.sleep(0)).result()
    assert service.num_running == 0


def test_a_plain_program_on_the_calls_own_event_loop_is_told_so_and_does_not_hang():
    @function
    def inner(s):
        s += gen("x")
        return s["x"]

    @function
    async def outer(p):
        inner()

    with pytest.raises(ProgramError, match="async def"):
        outer.run(backend=Service())


def test_states_that_are_dropped_leave_nothing_behind():
    service = Service()

    @function
    def program(s):
        s += "x"
        forks = s.fork(3)
        forks += gen("a")
        forks.join()

    state = program.run(backend=service)
    state.sync()
    assert len(state["a"]) == 3
    gone = weakref.ref(state), weakref.ref(state.run), weakref.ref(state._stream)
    del state
    service.loop.start(asyncio.sleep(0)).result()
    gc.collect()
    assert [each() for each in gone] == [None] * 3


def test_a_nested_program_uses_the_backend_of_the_one_around_it():
    inside = Service()

    @function
    def inner(s):
        s += "inner" + gen("x")

    @function
    def outer(s):
        s += inner()["x"] + inner(backend=Mock(["mock"]))["x"]

    assert outer.run(backend=inside).text() == "<5>mock"
    assert inside.prompts == ["inner"]
