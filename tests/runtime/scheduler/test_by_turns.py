"""Of one client's request with many prompts some go before who came later, and the others behind."""

import random

import pytest
from bench_top import BenchTop

from ramet.runtime.scheduler.by_turns import MAX_RUNS, TURN, ByTurns, Rank, take_out
from ramet.runtime.scheduler.policy import WINDOW

LARGE, LATER = 1000, 9000  # uids of a large request's first prompt, and of one that comes later


def large(num: int, arrival_s: float = 1.0, priority: int = 0) -> list[Rank]:
    first = LARGE * round(arrival_s)
    return [(-priority, arrival_s, uid) for uid in range(first, first + num)]


def uids(ranks: list[Rank]) -> list[int]:
    return [uid for _, _, uid in ranks]


def test_small_requests_go_by_priority_and_arrival() -> None:
    queue, draw = ByTurns(), random.Random(0)
    ranks = [(-draw.randrange(3), float(draw.randrange(99)), uid) for uid in range(1, 300)]
    queue.add_all(ranks)
    assert queue.first(200) == uids(sorted(ranks)[:200])


def test_who_comes_later_waits_for_one_turn_of_a_large_request() -> None:
    queue = ByTurns()
    ranks = large(3 * WINDOW)
    queue.add_all(ranks)
    queue.add((0, 2.0, LATER))
    first = queue.first(WINDOW)
    assert first == [*uids(ranks[:TURN]), LATER, *uids(ranks[TURN : WINDOW - 1])]


def test_a_request_of_one_turn_keeps_its_place() -> None:
    queue = ByTurns()
    ranks = large(TURN)
    queue.add_all(ranks)
    for rank in ranks[: TURN // 2]:
        queue.begun(rank, 3.0)
        queue.remove(rank)
    queue.add((0, 2.0, LATER))
    assert queue.first(WINDOW) == [*uids(ranks[TURN // 2 :]), LATER]


def test_after_its_turn_a_large_request_goes_behind_all_who_wait() -> None:
    queue = ByTurns()
    first, second = large(200, 1.0), large(200, 2.0)
    queue.add_all([*first, *second])
    queue.add((0, 3.0, LATER))
    begun: list[int] = []
    while len(begun) < 4 * TURN:
        uid = queue.first(1)[0]
        begun.append(uid)
        rank = (0, 3.0, uid) if uid == LATER else (0, float(uid // LARGE), uid)
        queue.begun(rank, 4.0 + len(begun) / 1e3)
        queue.remove(rank)
    turns = [*uids(first[:TURN]), *uids(second[:TURN]), LATER, *uids(first[TURN : 2 * TURN]), *uids(second[TURN:])]
    assert begun == turns[: 4 * TURN]


def test_a_higher_priority_goes_before_any_turn() -> None:
    queue = ByTurns()
    ranks = large(200, priority=1)
    queue.add_all(ranks)
    queue.add((0, 0.5, LATER))
    for rank in ranks[:TURN]:
        queue.begun(rank, 9.0)
        queue.remove(rank)
    assert queue.first(WINDOW) == [*uids(ranks[TURN : 2 * TURN]), LATER, *uids(ranks[2 * TURN :])]
    assert queue.first(TURN) == uids(ranks[TURN : 2 * TURN])


def test_everybody_is_found_once_however_many_are_asked_for() -> None:
    queue, draw = ByTurns(), random.Random(1)
    here = [rank for arrival in (1.0, 2.0, 4.0) for rank in large(draw.randrange(50, 200), arrival)]
    queue.add_all(here)
    for step in range(60):
        small = (0, draw.uniform(0, 9), LATER + step)
        here.append(small)
        queue.add(small)
        for uid in queue.first(draw.randrange(12)):
            rank = next(rank for rank in here if rank[-1] == uid)
            here.remove(rank)
            queue.begun(rank, 5.0 + step / 10)
            queue.remove(rank)
        num = draw.randrange(len(here) + 9)
        found = queue.first(num)
        assert len(found) == min(num, len(here)) and len(set(found)) == len(found)
    for gone in (slice(None, None, 3), slice(5, 90)):
        queue.remove_all(sorted(here)[gone])
        here = [rank for rank in here if rank not in sorted(here)[gone]]
        assert sorted(queue.first(999)) == sorted(uids(here))


@pytest.mark.parametrize("step", [1, 2, 3])
def test_what_is_taken_out_is_gone_and_nothing_else(step: int) -> None:
    entries = large(4 * MAX_RUNS)
    gone = entries[7 : 3 * MAX_RUNS : step]
    kept = [entry for entry in entries if entry not in gone]
    take_out(entries, gone)
    assert entries == kept


def test_beside_thousands_of_prompts_of_one_request_another_request_begins_at_once() -> None:
    top = BenchTop(rows=64, total=16384, deep_checks=False, check_invariants=False)
    top.add(1, [1, 2, 3], 400)
    top.clock.advance(1.0)
    top.turn()
    for uid in range(LARGE, LARGE + 3 * WINDOW):
        top.add(uid, [uid % 200 + 10, uid // 200, 7, 8], 1)
    for _ in range(4):
        top.turn()
    top.clock.advance(1.0)
    top.add(LATER, [9, 9, 9, 9], 1)
    top.turn()
    top.turn()
    assert LATER in top.finish and len(top.finish) < WINDOW


def test_for_a_row_nobody_waits_behind_more_than_a_turn_of_a_large_request() -> None:
    top = BenchTop(rows=4, total=16384, deep_checks=False, check_invariants=False)
    for uid in range(LARGE, LARGE + 5 * TURN):
        top.add(uid, [uid % 200 + 10, uid // 200, 7, 8], 3)
    top.turn()
    top.clock.advance(1.0)
    top.add(LATER, [9, 9, 9, 9], 3)
    while LATER not in top.finish:
        top.clock.advance(0.1)
        top.turn()
    assert TURN - 8 <= len(top.finish) <= TURN + 8
