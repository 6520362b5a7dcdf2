"""Many requests that are admitted in one step: what each costs does not grow with the others."""

import pytest
from bench_top import BenchTop
from effort import num_lines

from ramet.runtime.scheduler.begin_share import MAX_BEGUN

FEW, MANY = 50, 500
MAX_TIMES = 1.25  # lines for each of MANY requests, over those for each of FEW


def test_a_request_is_admitted_without_a_look_at_those_of_the_same_step() -> None:
    def lines_of_each(num: int) -> float:
        top = BenchTop(rows=MANY, total=8192, deep_checks=False, check_invariants=False)
        for uid in range(1, num + 1):
            top.add(uid, [uid % 250 + 1, uid // 250, 7, 8], 4)
        top.scheduler.receive(block=False)
        taken = num_lines(top.scheduler.turn)
        assert len(top.scheduler.running) == num
        return taken / num

    assert lines_of_each(MANY) < MAX_TIMES * lines_of_each(FEW)


@pytest.mark.parametrize("beside", [False, True])
def test_beside_a_row_that_draws_some_begin_in_each_step_and_else_all(beside: bool) -> None:
    top = BenchTop(rows=MANY, total=8192, deep_checks=False, check_invariants=False)
    if beside:
        top.add(MANY, [1, 2, 3], 99)
        top.turn()
    for uid in range(1, 2 * MAX_BEGUN + 6):
        top.add(uid, [uid % 250 + 1, uid // 250, 7, 8], 50)
    begun = []
    for _ in range(3):
        top.turn()
        begun.append(len(top.scheduler.running) - beside)
        if begun == [MAX_BEGUN]:
            found = top.scheduler.where(2 * MAX_BEGUN + 5)
            assert found is not None and str(found["reason"]).startswith("64 requests begin in this step already")
    num = 2 * MAX_BEGUN + 5
    assert begun == ([MAX_BEGUN, 2 * MAX_BEGUN, num] if beside else [num] * 3)
    top.run()
    assert len(top.finish) == num + beside


def test_rows_of_all_that_run_are_listed_once_until_one_enters_or_leaves() -> None:
    top = BenchTop()
    for uid in (1, 2, 3):
        top.add(uid, [uid, 7, 8], 9)
        top.turn()
    running = top.scheduler.running
    rows = running.rows
    assert rows is running.rows and rows.tolist() == [each.row for each in running]
    top.abort(2)
    top.turn()
    assert running.rows.tolist() == [each.row for each in running] and len(running.rows) == 2
