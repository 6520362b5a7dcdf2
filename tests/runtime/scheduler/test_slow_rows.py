"""Rows whose stop patterns are slow skip steps, so that others decode, and a row that takes too much time ends."""

import pytest
from bench_top import BenchTop
from manual_clock import ManualClock
from schedules import TOKENIZER

from ramet.ipc.messages import FinishKind
from ramet.runtime.scheduler.features import slow_rows
from ramet.runtime.scheduler.features.slow_rows import DEBT_S, SHARE, SlowRows
from ramet.runtime.scheduler.running import Hold

PROMPT = [11, 12, 13, 14, 15]


def slow(text: str) -> tuple[str, ...]:
    """Patterns with hundreds of states for each character. They differ by `text`, because compiled ones are cached."""
    return tuple(f"(?s)(.?){{{count}}}#{text}" for count in range(450, 458))


overlaps = pytest.mark.parametrize("overlap", ["off", "on"])


def three() -> BenchTop:
    top = BenchTop()
    for uid in (1, 2, 3):
        top.add(uid, [*PROMPT, uid], 20)
    for _ in range(3):
        top.turn()
    return top


def test_slow_rows_take_their_share_of_the_time_together() -> None:
    top, clock = three(), ManualClock()
    running = top.scheduler.running
    slow = SlowRows(running, 1.0, clock)
    rows = [running.get(uid) for uid in (1, 2)]
    for row in rows:
        assert row is not None and slow.charge(row, 2 * DEBT_S, "stop_regex") is None
    assert running.held == {1: Hold.SLOW, 2: Hold.SLOW} and running.get(3) is not None
    assert [running.at(row).uid for row in running.decoding] == [3]
    slow.release_due(alone=False)
    assert list(running.held) == [2]  # the first one at once
    clock.advance(DEBT_S / SHARE)
    slow.release_due(alone=False)
    assert list(running.held) == [2]
    clock.advance(DEBT_S / SHARE)
    slow.release_due(alone=False)
    assert not running.held and not slow._held


def test_a_slow_row_waits_for_nobody_where_it_is_alone() -> None:
    top = three()
    running, slow = top.scheduler.running, SlowRows(top.scheduler.running, 1.0, ManualClock())
    for _ in range(3):
        row = running.get(1)
        assert row is not None and slow.charge(row, 2 * DEBT_S, "stop_regex") is None
        slow.release_due(alone=True)
        assert not running.held


def test_a_request_that_has_ended_leaves_its_turn_and_its_budget() -> None:
    top, clock = three(), ManualClock()
    running = top.scheduler.running
    slow = SlowRows(running, 1.0, clock)
    for row in [running.get(uid) for uid in (1, 2)]:
        assert row is not None and slow.charge(row, 0.9, "stop_regex") is None
    other = running.get(3)
    top.abort(1)
    top.turn()
    slow.release_due(alone=False)
    assert not running.held, "the turn is the second one's"
    assert other is not None and slow.charge(other, 0.9, "stop_regex") is None
    slow.forget(other.uid)
    assert slow.charge(other, 0.9, "stop_regex") is None
    assert slow.charge(other, 0.0, "stop_regex", num_tokens=10_000) is None, "its debt is paid"
    assert slow.charge(other, 0.9, "stop_regex") is not None, "but not its budget"


def test_what_takes_little_is_never_held() -> None:
    top = three()
    row, slow = top.scheduler.running.get(1), SlowRows(top.scheduler.running, 1.0, ManualClock())
    assert row is not None
    for _ in range(10_000):
        assert slow.charge(row, 0.0004, "stop_regex") is None
    assert slow.charge(row, 0.1, "ebnf", num_tokens=200) is None and not top.scheduler.running.held


def test_a_row_that_is_held_for_two_reasons_is_released_from_both() -> None:
    running = three().scheduler.running
    row = running.get(1)
    assert row is not None
    running.hold(row, Hold.SLOW)
    running.hold(row, Hold.ASIDE)
    running.release(row, Hold.SLOW)
    assert running.held == {1: Hold.ASIDE}
    running.release(row, Hold.ASIDE)
    assert not running.held


@overlaps
def test_slow_stop_patterns_hold_no_other_row(overlap: str) -> None:
    top = BenchTop(tokenizer=TOKENIZER, overlap=overlap)
    for uid in range(1, 5):
        top.add(uid, [*PROMPT, uid], 12, stop_regex=slow(f"{uid}{overlap}"))
    top.add(100, PROMPT, 60)
    while 100 not in top.finish:
        top.turn()
    assert len(top.tokens[100]) == 60 and sum(len(top.tokens[uid]) for uid in range(1, 5)) < 30
    top.run()
    assert all(len(top.tokens[uid]) == 12 for uid in range(1, 5))


@overlaps
def test_a_stop_pattern_that_takes_too_long_ends_its_request_alone(overlap: str) -> None:
    top = BenchTop(tokenizer=TOKENIZER, overlap=overlap, grammar_output_s=0.03)
    top.add(1, PROMPT, 100, stop_regex=slow(f"one{overlap}"))
    top.add(2, [*PROMPT, 3], 60, stop_regex=("#+%",))
    top.run()
    finish = top.finish[1]
    assert (finish.kind, finish.error.status, finish.error.place) == (FinishKind.ABORT, 400, "stop_regex")
    assert str(finish.error).startswith("stop_regex took longer than the 0.03 s of --grammar-output-s, in ")
    assert len(top.tokens[2]) == 60


@overlaps
def test_a_step_that_has_no_time_left_leaves_patterns_to_the_next_turns(
    overlap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_rows, "FREE_S", 0.0)
    monkeypatch.setattr(slow_rows, "ALLOWANCE_S", 0.0)
    top = BenchTop(tokenizer=TOKENIZER, overlap=overlap)
    for uid in range(1, 17):
        top.add(uid, [*PROMPT, uid], 3, stop_regex=("#+%",))
    top.add(100, PROMPT, 20)
    top.run()
    assert all(len(top.tokens[uid]) == 3 for uid in range(1, 17)) and len(top.tokens[100]) == 20
    assert max(len(set(step.uids) - {100}) for step in top.told) == 2  # one that had waited and one of the step's
