"""Rows whose stop patterns wait for a later turn: searching late changes no output, plain and overlapped.

The schedules are those of test_overlap.py and test_healed_schedules.py, with stop patterns for most requests. The first
search of a step or turn spends its whole allowance, so that the others are put off.
"""

import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_top import BenchTop
from samples import slow
from schedules import TOKENIZER, Schedule, make_schedule, run

from ramet.ipc.messages import Finish
from ramet.runtime.scheduler.features import slow_rows
from ramet.runtime.scheduler.rows import RunningRequest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_healed_schedules import GRAMMARS, healed
from test_late_constraints import is_same

PATTERNS = ["[aeiou] ?[b-d]", r"(?s).{5,9}e$", r"\bth", "[0-9]+", "(?i)q|z", "never seen"]


def with_patterns(schedule: Schedule, seed: int) -> Schedule:
    draw, arrivals = random.Random(seed), []
    for each in schedule.arrivals:
        patterns = tuple(draw.sample(PATTERNS, draw.choice([0, 1, 2, 3])))
        arrivals.append(replace(each, asked={**each.asked, "stop_regex": patterns}))
    return replace(schedule, arrivals=arrivals)


class Late(BenchTop):
    num_late = num_dropped = 0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        patterns, running = self.features.late.patterns, self.scheduler.running
        rewritten = self.features.late.rewritten
        catch_up, drop_planned = patterns.catch_up, rewritten.drop_planned

        def counted(row: RunningRequest) -> Finish | None:
            Late.num_late += 1
            return catch_up(row)

        def dropped(row: RunningRequest) -> None:
            table = running.table
            Late.num_dropped += int(table.planned_totals[row.row] > table.totals[row.row])
            drop_planned(row)

        patterns.catch_up, rewritten.drop_planned = counted, dropped  # type: ignore[method-assign]


def check(schedule: Schedule, seed: int, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    options = {"tokenizer": TOKENIZER, **schedule.options, **more}
    at_once = run(schedule, BenchTop(overlap="off", **options))
    with monkeypatch.context() as patched:
        patched.setattr(slow_rows, "FREE_S", 0.0)
        patched.setattr(slow_rows, "ALLOWANCE_S", 0.0)
        for overlap in ("off", "on"):
            late = run(schedule, Late(overlap=overlap, **options))
            is_same(at_once, late, seed)
            state = late.reporter.state()
            assert state["leased_tokens"] == state["owned_tokens"] == state["penalty_slots"] == 0, seed
            assert state["generated_tokens"] == sum(map(len, late.tokens.values())), seed
            assert not late.features.late.patterns._left, seed


@pytest.mark.parametrize("first", [0, 20, *map(slow, range(500, 700, 20))])
def test_patterns_that_are_searched_late_change_no_output(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    Late.num_late = Late.num_dropped = 0
    for seed in range(first, first + 20):
        check(with_patterns(make_schedule(seed), seed), seed, monkeypatch)
    assert Late.num_late > 30 and Late.num_dropped > 2


@pytest.mark.parametrize("first", [120, *map(slow, range(500, 600, 10))])
def test_patterns_of_healed_and_constrained_rows_that_are_searched_late_change_no_output(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    Late.num_late = 0
    for seed in range(first, first + 10):
        check(with_patterns(healed(seed), seed), seed, monkeypatch, grammars=GRAMMARS, jump_forward="off")
    assert Late.num_late > 3
