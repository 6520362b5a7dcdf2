"""The log's lines of steps: how often they come, and that they sum what came since the last of their kind."""

import logging
import re

import pytest
from bench_top import BenchTop

from ramet.runtime.scheduler.process.report import DECODE_INTERVAL, LINE_INTERVAL_S


def lines(caplog: pytest.LogCaptureFixture, kind: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith(f"{kind} batch")]


def run_for(top: BenchTop, turns: int, step_s: float) -> None:
    for _ in range(turns):
        top.turn()
        top.clock.advance(step_s)


@pytest.fixture
def top(caplog: pytest.LogCaptureFixture) -> BenchTop:
    caplog.set_level(logging.INFO, "ramet")
    return BenchTop(total=8192, context=4096, deep_checks=False)


def test_fast_steps_have_a_line_every_few_seconds_with_their_rate(top: BenchTop, caplog: pytest.LogCaptureFixture):
    top.clock.advance(3600.0)  # when nothing ran
    top.add(1, [1, 2, 3], 2000)
    run_for(top, 1800, 1 / 64)  # 28 s
    said = lines(caplog, "Decode")
    assert len(said) == 1800 / 64 // LINE_INTERVAL_S + 1
    rates = [float(re.search(r", ([\d.]+) tokens/s$", line)[1]) for line in said]
    assert rates == pytest.approx([64.0] * len(said), rel=0.05)
    assert [f"{int(LINE_INTERVAL_S * 64)} new tokens" in line for line in said] == [False] + [True] * (len(said) - 1)


def test_slow_steps_have_a_line_for_so_many(top: BenchTop, caplog: pytest.LogCaptureFixture):
    top.add(1, [1, 2, 3], 300)
    run_for(top, 2 + 3 * DECODE_INTERVAL, LINE_INTERVAL_S)
    assert len(lines(caplog, "Decode")) == 3 and all("0.2 tokens/s" in line for line in lines(caplog, "Decode"))


def test_a_rate_counts_no_time_in_which_nothing_ran(top: BenchTop, caplog: pytest.LogCaptureFixture):
    for uid in (1, 2):
        top.add(uid, [1, 2, uid], 100)
        run_for(top, 105, 1 / 64)
        top.clock.advance(100.0)
    second = lines(caplog, "Decode")[1]
    assert ", 62 new tokens" in second and re.search(r", 6[45]\.\d tokens/s$", second)


def test_prefills_are_summed_until_their_next_line(top: BenchTop, caplog: pytest.LogCaptureFixture):
    for uid in range(1, 21):
        top.add(uid, [uid] * 10, 1)
        run_for(top, 2, 0.25)
    top.clock.advance(LINE_INTERVAL_S)
    top.add(21, [1] * 10, 1)
    top.turn()
    said = lines(caplog, "Prefill")
    assert [re.search(r": (\d+) seqs, (\d+) new tokens, (\d+) cached", line).groups() for line in said] == [
        ("1", "10", "0"), ("10", "100", "0"), ("10", "91", "9"),
    ]  # fmt: skip
