"""Rows whose constraints wait for a later turn: masks, accepted tokens and jumps that come late change no output.

The schedules are those of test_constrained_schedules.py and test_healed_schedules.py, where the first act of a step or
turn spends its whole allowance, so that most of what constraints do is put off.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bench_top import BenchTop
from samples import slow
from schedules import Schedule, what_clients_see

from ramet.ipc.messages import Finish, FinishKind
from ramet.runtime.scheduler.features import masks, slow_rows
from ramet.runtime.scheduler.features.constrained import Constrained
from ramet.runtime.scheduler.features.healing import NOTHING_LEFT
from ramet.runtime.scheduler.rows import RunningRequest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import test_constrained_schedules as plain
import test_healed_schedules as healed

WAYS = [(jump, overlap) for jump in ("off", "ff") for overlap in ("off", "on")]


def is_same(at_once: BenchTop, late: BenchTop, seed: int) -> None:
    assert late.finish.keys() == at_once.finish.keys()
    for uid, finish in at_once.finish.items():
        ends = finish, late.finish[uid]
        if any(end.kind is FinishKind.ABORT and end.error.fact != NOTHING_LEFT for end in ends):
            shorter = min(len(at_once.tokens[uid]), len(late.tokens[uid]))
            assert at_once.tokens[uid][:shorter] == late.tokens[uid][:shorter], (seed, uid)
        else:
            assert what_clients_see(at_once, uid) == what_clients_see(late, uid), (seed, uid)


DONE = Counter[str]()  # what was put off


class Late(BenchTop):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        constrained = self.features.late.constrained
        catch_up = constrained.catch_up

        def counted(running: RunningRequest) -> Finish | None:
            own = running.request.own[Constrained]
            what = "accept" if own.postponed is not None else "mask" if own.late_mask is not None else "look"
            DONE[what] += 1
            return catch_up(running)

        constrained.catch_up = counted


def check(module: Any, schedule: Schedule, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = module.play(schedule, jump_forward="off", overlap="off")
    with monkeypatch.context() as patched:
        for place, name in ((slow_rows, "FREE_S"), (slow_rows, "ALLOWANCE_S"), (masks, "FREE_S")):
            patched.setattr(place, name, 0.0)
        patched.setattr(module, "BenchTop", Late)
        for jump, overlap in WAYS:
            late = module.play(schedule, jump_forward=jump, overlap=overlap)
            is_same(at_once, late, seed)
            module.nothing_is_lost(late, seed)


@pytest.mark.parametrize("first", [0, slow(500), slow(600)])
def test_what_constraints_put_off_changes_no_output(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    DONE.clear()
    for seed in range(first, first + 20):
        check(plain, plain.constrained(seed)[0], seed, monkeypatch)
    assert min(DONE[what] for what in ("accept", "mask", "look")) > 30, DONE


@pytest.mark.parametrize("first", [120, slow(500), slow(600)])
def test_what_constraints_of_healed_prompts_put_off_changes_no_output(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    DONE.clear()
    for seed in range(first, first + 20):
        check(healed, healed.healed(seed), seed, monkeypatch)
    assert min(DONE[what] for what in ("accept", "mask", "look")) > 10, DONE
