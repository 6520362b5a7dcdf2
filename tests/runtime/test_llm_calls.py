"""LLM called from many threads and event loops at once, left while it is called, and never closed."""

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from ramet.runtime.engine.runner import ModelRunner
from ramet.runtime.errors import ClientError, EngineClosed
from ramet.runtime.llm import LLM

OPTIONS: dict[str, Any] = {"dtype": "float32", "num_threads": 1, "random_seed": 1, "log_level": "error"}
CALLERS = 32
PROMPTS = [f"Number {i} is a number. " * (1 + i % 3) for i in range(CALLERS)]
# long enough that 32 callers have all arrived in the first tenth of it, on a busy machine too
PARAMS = {"temperature": 0, "max_new_tokens": 100, "ignore_eos": True}
ENDLESS = {"temperature": 0, "max_new_tokens": 4000, "ignore_eos": True}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(max_total_tokens=16384, disable_radix_cache=True, **OPTIONS) as made:
        yield made


def idle_state(llm: LLM) -> dict[str, Any]:
    states = (llm.state() for _ in range(100_000))
    return next(state for state in states if not state["running_requests"] and not state["waiting_requests"])


def counted(llm: LLM, call: Callable[[], list[list[int]]]) -> tuple[list[list[int]], float]:
    """What the call returns, and how many steps the scheduler took for it."""
    before = llm.phase_seconds()["steps"]
    return call(), llm.phase_seconds()["steps"] - before


def ids(replies: list[dict[str, Any]]) -> list[list[int]]:
    return [reply["output_ids"] for reply in replies]


def from_threads(llm: LLM, prompts: list[str]) -> list[list[int]]:
    with ThreadPoolExecutor(len(prompts)) as pool:
        return [each for (each,) in pool.map(lambda prompt: ids(llm.generate(prompt, PARAMS)), prompts)]


def from_asyncio(llm: LLM, prompts: list[str]) -> list[list[int]]:
    async def main() -> list[list[int]]:
        replies = await asyncio.gather(*(llm.agenerate(prompt, PARAMS) for prompt in prompts))
        return [each for reply in replies for each in ids(reply)]

    return asyncio.run(main())


def from_both(llm: LLM, prompts: list[str]) -> list[list[int]]:
    """Half of them from threads, and half from two event loops on threads of their own."""
    half, quarter = len(prompts) // 2, len(prompts) // 4
    with ThreadPoolExecutor(3) as pool:
        parts = [
            pool.submit(from_threads, llm, prompts[:half]),
            pool.submit(from_asyncio, llm, prompts[half : half + quarter]),
            pool.submit(from_asyncio, llm, prompts[half + quarter :]),
        ]
        return [each for part in parts for each in part.result()]


@pytest.fixture(scope="module")
def alone(llm: LLM) -> list[list[int]]:
    """Each prompt's answer when nothing else runs."""
    return [ids(llm.generate(prompt, PARAMS))[0] for prompt in PROMPTS]


@pytest.mark.parametrize("ask", [from_threads, from_asyncio, from_both])
def test_calls_at_once_answer_as_one_at_a_time_in_the_steps_of_one_batch(
    llm: LLM, alone: list[list[int]], ask: Callable[[LLM, list[str]], list[list[int]]]
):
    batch, in_one_call = counted(llm, lambda: ids(llm.generate(PROMPTS, PARAMS)))
    answers, steps = counted(llm, lambda: ask(llm, PROMPTS))
    assert batch == answers == alone
    assert steps <= 1.25 * in_one_call


def test_streams_from_threads_and_event_loops_grow_to_what_generate_says(llm: LLM, alone: list[list[int]]):
    def streamed(prompt: str) -> list[int]:
        return list(llm.stream(prompt, PARAMS))[-1]["output_ids"]

    async def streamed_async(prompt: str) -> list[int]:
        return [reply async for reply in llm.astream(prompt, PARAMS)][-1]["output_ids"]

    async def main(prompts: list[str]) -> list[list[int]]:
        return list(await asyncio.gather(*map(streamed_async, prompts)))

    with ThreadPoolExecutor(9) as pool:
        beside = pool.submit(lambda: asyncio.run(main(PROMPTS[8:16])))
        assert list(pool.map(streamed, PROMPTS[:8])) == alone[:8]
        assert beside.result() == alone[8:16]


def test_an_async_stream_gives_every_token_and_grows(llm: LLM, alone: list[list[int]]):
    async def main() -> None:
        texts = [reply["text"] async for reply in llm.astream(PROMPTS[0], PARAMS)]
        assert len(texts) > 20 and all(b.startswith(a) for a, b in pairwise(texts))

    asyncio.run(main())


def test_cancelling_an_async_call_frees_its_slots_and_ends_no_other(llm: LLM, alone: list[list[int]]):
    async def main() -> None:
        victim = asyncio.create_task(llm.agenerate([PROMPTS[1], PROMPTS[2]], ENDLESS))
        other = asyncio.create_task(llm.agenerate(PROMPTS[0], PARAMS))
        while llm.state()["running_requests"] < 3:
            await asyncio.sleep(0)
        victim.cancel()
        with pytest.raises(asyncio.CancelledError):
            await victim
        assert ids(await other) == alone[:1]

    asyncio.run(main())
    state = idle_state(llm)
    assert state["owned_tokens"] == state["leased_tokens"] == 0


def test_a_timeout_around_an_async_stream_frees_its_slots(llm: LLM):
    async def read(stream: AsyncIterator[dict[str, Any]]) -> None:
        async for _ in stream:
            pass

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(llm.astream(PROMPTS[0], ENDLESS)), 0.05)

    asyncio.run(main())
    assert idle_state(llm)["owned_tokens"] == 0


def test_a_stream_that_nobody_holds_any_more_is_aborted(llm: LLM):
    stream = llm.stream(PROMPTS[0], ENDLESS)
    next(stream)
    del stream
    gc.collect()
    assert idle_state(llm)["owned_tokens"] == 0


def test_errors_come_to_the_caller_that_made_them(llm: LLM, alone: list[list[int]]):
    def ask(i: int) -> list[list[int]] | str:
        try:
            return ids(llm.generate(PROMPTS[i] if i % 2 else [1 << 30], PARAMS))
        except ClientError as error:
            return error.place

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(8)))
    assert found == [[alone[i]] if i % 2 else "input_ids[0]" for i in range(8)]

    async def check() -> None:
        with pytest.raises(ClientError, match="top_p"):
            await llm.agenerate("a", {"top_p": 7})
        with pytest.raises(ClientError, match="input_ids"):
            async for _ in llm.astream([1 << 30]):
                pass

    asyncio.run(check())


def test_a_sequence_that_fails_ends_by_itself():
    with LLM(max_total_tokens=2048, enable_custom_logit_processor=True, **OPTIONS) as llm:
        bad, good = llm.generate(["a", "b"], {"max_new_tokens": 3}, custom_logit_processor=["nobody", None])
    reason = bad["meta_info"]["finish_reason"]
    assert (reason["type"], reason["status_code"]) == ("abort", 400) and "nobody" in reason["message"]
    assert len(good["output_ids"]) == 3


def test_thousands_of_prompts_are_one_call(llm: LLM):
    replies = llm.generate([[5 + i % 4000, 6] for i in range(3000)], {"max_new_tokens": 1, "temperature": 0})
    assert len(replies) == 3000 and all(len(reply["output_ids"]) == 1 for reply in replies)
    assert idle_state(llm)["owned_tokens"] == 0


# -- the end --------------------------------------------------------------------------------------------------------


def endless_calls(llm: LLM, outcomes: list[BaseException]) -> list[threading.Thread]:
    """A whole call, a stream and an async call that take minutes, each on a thread; they run when this returns."""

    def kept(call: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - looked at by the test
                outcomes.append(error)

        return run

    calls: list[Callable[[], object]] = [
        lambda: llm.generate(["a", "b"], ENDLESS),
        lambda: list(llm.stream("c", ENDLESS)),
        lambda: asyncio.run(llm.agenerate("d", ENDLESS)),
    ]
    threads = [threading.Thread(target=kept(call)) for call in calls]
    for thread in threads:
        thread.start()
    while llm.state()["running_requests"] < 4:
        pass
    return threads


def test_leaving_with_ends_open_calls_with_an_error_and_leaves_no_thread():
    before = set(threading.enumerate())
    outcomes: list[BaseException] = []
    with LLM(max_total_tokens=20000, **OPTIONS) as llm:
        threads = endless_calls(llm, outcomes)
    for thread in threads:
        thread.join(30)
    assert set(threading.enumerate()) <= before
    assert [type(error) for error in outcomes] == [EngineClosed] * 3


def test_a_closed_llm_says_so_and_is_closed_once():
    llm = LLM(max_total_tokens=1024, **OPTIONS)
    left = llm.stream("a", ENDLESS)
    next(left)
    llm.close()
    llm.close()
    for call in (lambda: llm.generate("a"), lambda: list(llm.stream("a")), llm.state, lambda: next(left)):
        with pytest.raises(EngineClosed):
            call()
    with pytest.raises(EngineClosed):
        asyncio.run(llm.agenerate("a"))


def test_two_threads_may_close_at_once():
    before = set(threading.enumerate())
    llm = LLM(max_total_tokens=1024, **OPTIONS)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: llm.close(), range(4)))
    assert set(threading.enumerate()) <= before


def num_runners() -> int:
    gc.collect()
    return sum(type(each) is ModelRunner for each in gc.get_objects())


def test_close_drops_the_model():
    before = num_runners()
    llm = LLM(max_total_tokens=1024, **OPTIONS)
    assert num_runners() == before + 1
    llm.generate("a", {"max_new_tokens": 2})
    gc.disable()
    try:
        llm.close()
        assert sum(type(each) is ModelRunner for each in gc.get_objects()) == before  # nobody has to collect it
    finally:
        gc.enable()


def test_an_llm_that_is_let_go_ends_its_threads():
    before = set(threading.enumerate())
    LLM(max_total_tokens=1024, **OPTIONS).generate("a", {"max_new_tokens": 2})
    gc.collect()
    assert set(threading.enumerate()) <= before


def test_a_model_that_cannot_be_loaded_leaves_no_thread(tmp_path: Any):
    before = set(threading.enumerate())
    with pytest.raises(Exception, match="device"):
        LLM(max_total_tokens=1024, device="cuda:7", **OPTIONS)
    assert set(threading.enumerate()) <= before


NEVER_CLOSED = """
import threading
from ramet.runtime.llm import LLM
llm = LLM(max_total_tokens=4096)
llm.generate("a", {"max_new_tokens": 2})
MORE
print("the end")
"""


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ("", 0),
        ("stream = llm.stream('a', {'max_new_tokens': 2000, 'ignore_eos': True}); next(stream)", 0),
        ("print('the end'); raise SystemExit(3)", 3),
    ],
    ids=["idle", "amid a stream", "by an exception"],
)
def test_python_ends_beside_an_llm_that_was_never_closed(more: str, code: int):
    ran = subprocess.run(
        [sys.executable, "-c", NEVER_CLOSED.replace("MORE", more)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, "the end\n", "")
