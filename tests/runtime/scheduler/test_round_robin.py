"""Of one client's request with many prompts some go before who came later, and the others behind."""

import random

import pytest
from bench_top import BenchTop

from ramet.runtime.scheduler.policy import WINDOW
from ramet.runtime.scheduler.round_robin import MAX_RUNS, QUANTUM, Precedence, RoundRobin, take_out

LARGE, LATER = 1000, 9000  # uids of a large request's first prompt, and of one that comes later


def large(num: int, arrival_s: float = 1.0, priority: int = 0) -> list[Precedence]:
    first = LARGE * round(arrival_s)
    return [(-priority, arrival_s, uid) for uid in range(first, first + num)]


def uids(precedences: list[Precedence]) -> list[int]:
    return [uid for _, _, uid in precedences]


def test_small_requests_go_by_priority_and_arrival() -> None:
    queue, draw = RoundRobin(), random.Random(0)
    precedences = [(-draw.randrange(3), float(draw.randrange(99)), uid) for uid in range(1, 300)]
    queue.add_all(precedences)
    assert queue.first(200) == uids(sorted(precedences)[:200])


def test_who_comes_later_waits_for_one_turn_of_a_large_request() -> None:
    queue = RoundRobin()
    precedences = large(3 * WINDOW)
    queue.add_all(precedences)
    queue.add((0, 2.0, LATER))
    first = queue.first(WINDOW)
    assert first == [*uids(precedences[:QUANTUM]), LATER, *uids(precedences[QUANTUM : WINDOW - 1])]


def test_a_request_of_one_turn_keeps_its_place() -> None:
    queue = RoundRobin()
    precedences = large(QUANTUM)
    queue.add_all(precedences)
    for precedence in precedences[: QUANTUM // 2]:
        queue.begun(precedence, 3.0)
        queue.remove(precedence)
    queue.add((0, 2.0, LATER))
    assert queue.first(WINDOW) == [*uids(precedences[QUANTUM // 2 :]), LATER]


def test_after_its_turn_a_large_request_goes_behind_all_who_wait() -> None:
    queue = RoundRobin()
    first, second = large(200, 1.0), large(200, 2.0)
    queue.add_all([*first, *second])
    queue.add((0, 3.0, LATER))
    begun: list[int] = []
    while len(begun) < 4 * QUANTUM:
        uid = queue.first(1)[0]
        begun.append(uid)
        precedence = (0, 3.0, uid) if uid == LATER else (0, float(uid // LARGE), uid)
        queue.begun(precedence, 4.0 + len(begun) / 1e3)
        queue.remove(precedence)
    expected = [*uids(first[:QUANTUM]), *uids(second[:QUANTUM]), LATER]
    expected += [*uids(first[QUANTUM : 2 * QUANTUM]), *uids(second[QUANTUM:])]
    assert begun == expected[: 4 * QUANTUM]


def test_a_higher_priority_goes_before_any_quantum() -> None:
    queue = RoundRobin()
    precedences = large(200, priority=1)
    queue.add_all(precedences)
    queue.add((0, 0.5, LATER))
    for precedence in precedences[:QUANTUM]:
        queue.begun(precedence, 9.0)
        queue.remove(precedence)
    assert queue.first(WINDOW) == [*uids(precedences[QUANTUM : 2 * QUANTUM]), LATER, *uids(precedences[2 * QUANTUM :])]
    assert queue.first(QUANTUM) == uids(precedences[QUANTUM : 2 * QUANTUM])


def test_everybody_is_found_once_however_many_are_asked_for() -> None:
    queue, draw = RoundRobin(), random.Random(1)
    here = [precedence for arrival in (1.0, 2.0, 4.0) for precedence in large(draw.randrange(50, 200), arrival)]
    queue.add_all(here)
    for step in range(60):
        small = (0, draw.uniform(0, 9), LATER + step)
        here.append(small)
        queue.add(small)
        for uid in queue.first(draw.randrange(12)):
            precedence = next(precedence for precedence in here if precedence[-1] == uid)
            here.remove(precedence)
            queue.begun(precedence, 5.0 + step / 10)
            queue.remove(precedence)
        num = draw.randrange(len(here) + 9)
        found = queue.first(num)
        assert len(found) == min(num, len(here)) and len(set(found)) == len(found)
    for gone in (slice(None, None, 3), slice(5, 90)):
        queue.remove_all(sorted(here)[gone])
        here = [precedence for precedence in here if precedence not in sorted(here)[gone]]
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
    for uid in range(LARGE, LARGE + 5 * QUANTUM):
        top.add(uid, [uid % 200 + 10, uid // 200, 7, 8], 3)
    top.turn()
    top.clock.advance(1.0)
    top.add(LATER, [9, 9, 9, 9], 3)
    while LATER not in top.finish:
        top.clock.advance(0.1)
        top.turn()
    assert QUANTUM - 8 <= len(top.finish) <= QUANTUM + 8
