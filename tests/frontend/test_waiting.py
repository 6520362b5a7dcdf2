"""Whoever waits gets its value or an error: no wait takes it from others, none stops the loop that it waits for."""

import asyncio
import pickle
import threading

import pytest

from ramet import BackendError, BatchFailed, CallFailed, Mock, ProgramError, Unsupported, flush_cache, function, gen
from ramet.frontend.errors import ClientError
from tests.fakes.services import Service


@function
def one(s):
    s += "x" + gen("a")


@function
async def one_async(s):
    s += "x" + gen("a")


def test_who_stops_waiting_takes_no_value_from_others():
    @function
    async def program(s):
        forks = s.fork(2)
        forks += "x"
        forks += gen("a")
        forks.join()
        for waited in (forks[0]["a"], s["a"]):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(waited, 0.05)
        threading.Thread(target=service.let_go).start()
        return await forks[0]["a"], await s["a"]

    service = Service()
    service.held = {"x"}
    assert program.run(backend=service).ret_value == ("<1>", ["<1>", "<1>"])


def test_a_run_that_ends_takes_no_value_from_another_one():
    @function
    async def borrowing(s, other):
        s += other["a"]

    @function
    async def lending(s):
        s += "x" + gen("a")
        late = await borrowing.arun(s, timeout_s=0.05)
        threading.Thread(target=service.let_go).start()
        return late.error(), await s["a"]

    service = Service()
    service.held = {"x"}
    error, value = lending.run(backend=service).ret_value
    assert isinstance(error, TimeoutError) and value == "<1>"


@pytest.mark.parametrize(
    "wait",
    [
        lambda: one_async.run(),
        lambda: one.run_batch([()]),
        lambda: list(one.run(stream=True).text_iter()),
        lambda: flush_cache(),
        lambda: one.run()["a"],
    ],
    ids=["run", "run_batch", "text_iter", "flush_cache", "value"],
)
def test_a_wait_for_the_loop_that_it_stands_on_is_refused(wait):
    @function
    async def program(s):
        with pytest.raises(ProgramError, match="would wait on the event loop that its calls need"):
            if wait.__code__.co_names[-1:] == ("flush_cache",):
                flush_cache(service)
            wait()

    service = Service()
    assert program.run(backend=service).error() is None


def test_a_plain_program_calls_an_async_one_as_any_other():
    @function
    def program(s):
        return one_async()["a"]

    assert program.run(backend=Service()).ret_value == "<1>"

    async def on_a_loop() -> str:
        return (await program.arun(backend=Service())).ret_value

    assert asyncio.run(on_a_loop()) == "<1>"


def test_values_are_awaited_together():
    @function
    async def program(s):
        s += "x" + gen("a") + gen("b")
        return await asyncio.gather(s["a"], s["b"])

    assert program.run(backend=Service()).ret_value == ["<1>", "<4>"]


def test_a_variable_that_the_function_sets_is_seen_by_who_waits_for_it():
    seen = threading.Event()

    @function
    def program(s):
        s["plan"] = "a plan"
        joined = s.fork(1)
        joined[0]["found"] = 1
        joined.join()
        assert seen.wait(30), "whoever reads sleeps on"

    state = program.run(backend=Service(), stream=True)
    assert state["plan"] == "a plan" and state["found"] == [1]
    seen.set()
    assert state.error() is None


def test_on_any_loop_as_well_a_streaming_run_is_whole_when_its_function_has_returned():
    go_on = threading.Event()

    @function
    def program(s):
        s += "a"
        assert go_on.wait(30)
        s += "b"

    async def reading() -> str:
        state = program.run(backend=Service(), stream=True)
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        await state.settled()
        return await state.text_async()

    assert asyncio.run(reading()) == "ab"


def test_awaited_plain_programs_all_run_at_once():
    async def many() -> None:
        runs = [asyncio.create_task(one.arun(backend=service)) for _ in range(50)]
        await asyncio.to_thread(service.wait_for, 50)
        await asyncio.to_thread(service.let_go)
        await asyncio.gather(*runs)

    service = Service()
    service.held = {"x"}
    asyncio.run(many())
    assert service.most_running == 50


def test_each_reader_of_a_stream_gets_an_error_of_its_own(caplog):
    service = Service()
    service.failing = {"x"}
    state = one.run(backend=service, stream=True)
    found = []
    for _ in range(2):
        with pytest.raises(CallFailed) as raised:
            list(state.text_iter())
        found.append(raised.value)
    assert found[0] is not found[1] and str(found[0]) == str(found[1])
    del state
    assert not caplog.records, "somebody was told"


def test_errors_come_whole_from_other_processes():
    failed = one.run(backend=Mock(lambda prompt, call: 1 / 0)).error()
    assert isinstance(failed, CallFailed)
    for error in (failed, BatchFailed(3, failed), Unsupported("Mock", "gen", "cannot"), ClientError("top_p", "is 3")):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error)
    copied = pickle.loads(pickle.dumps(failed))
    assert copied.what == "gen('a')" and isinstance(copied.reason, ZeroDivisionError)
    assert pickle.loads(pickle.dumps(BackendError("Mock", "busy", 503, 2.0))).retry_after_s == 2.0


def test_a_prompt_of_many_pieces_is_pickled():
    @function
    def long(s):
        for i in range(5000):
            s += s.user(str(i))

    prompt = long.run(backend=Mock()).prompt()
    again = pickle.loads(pickle.dumps(prompt))
    assert again.pieces() == prompt.pieces() and again.num_chars == prompt.num_chars


@pytest.mark.parametrize("fails", [False, True], ids=["ends", "fails"])
def test_joins_in_a_long_loop_whose_first_call_ends_last(fails):
    """Each list waits for the one before it; settled from within each other they were deeper than Python goes."""

    class FirstIsLast(Mock):
        async def generate(self, prompt, call, on_text=None):
            first = not self.calls
            outputs = await super().generate(prompt, call, on_text)
            if first:
                while len(self.calls) < NUM:
                    await asyncio.sleep(0.01)
                if fails:
                    raise BackendError("it", "broke")
            return outputs

    NUM = 1500

    @function
    def program(s):
        for i in range(NUM):
            forks = s.fork(1)
            forks += f"{i}" + gen("x")
            forks.join()

    state = program.run(backend=FirstIsLast(lambda prompt, _: prompt[-1]))
    if fails:
        with pytest.raises(CallFailed, match="broke"):
            state["x"]
    else:
        assert state["x"] == [str(i)[-1] for i in range(NUM)]
