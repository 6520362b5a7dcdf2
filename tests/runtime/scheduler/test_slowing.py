"""A scheduler that is told to be slow sleeps after each step, and nobody takes that for a hang."""

from collections.abc import Iterator
from contextlib import contextmanager

from bench_top import BenchTop
from hash_runner import expected_output

from ramet.ipc.control import SlowDown
from ramet.runtime.scheduler.process.slowing import SlowSteps

PROMPT = [5, 6, 7, 8]


def test_each_step_is_followed_by_a_sleep_until_it_is_told_otherwise() -> None:
    top, slept = BenchTop(), list[float]()
    SlowSteps(top.scheduler.control, top.listeners, slept.append)
    for sleep_s, expected in ((0.5, [0.5] * 5), (2.0, [2.0] * 5), (None, []), (0.0, [])):
        top.control(SlowDown, sleep_s=sleep_s)
        top.add(len(top.tokens) + 1, PROMPT, 5)
        top.run()
        assert slept == expected and top.replies[-1].ok
        slept.clear()
    assert all(tokens == expected_output(PROMPT, 5) for tokens in top.tokens.values())


def test_no_step_is_expected_while_it_sleeps() -> None:
    top, at = BenchTop(), list[str]()

    @contextmanager
    def excused() -> Iterator[None]:
        at.append("begin")
        yield
        at.append("end")

    top.scheduler.control.excused = excused
    SlowSteps(top.scheduler.control, top.listeners, lambda seconds: at.append("sleep"))
    top.control(SlowDown, sleep_s=1.0)
    top.add(1, PROMPT, 2)
    top.run()
    assert at == ["begin", "sleep", "end"] * 2
