"""A higher priority is served first and gives way last; nobody waits for ever."""

from bench_top import BenchTop


def test_the_highest_priority_goes_first_whatever_the_policy():
    for policy in ("lpm", "dfs-weight", "fcfs", "lof", "random"):
        top = BenchTop(rows=1, schedule_policy=policy)
        for uid, priority in ((1, 0), (2, 5), (3, -3), (4, 5), (5, 9)):
            top.add(uid, [uid] * 5, 3, priority=priority)
        top.run()
        assert top.finish_order[0] == 5 and set(top.finish_order[1:3]) == {2, 4}
        assert top.finish_order[3:] == [1, 3]


def test_a_late_arrival_of_high_priority_passes_a_long_queue():
    top = BenchTop(rows=1)
    for uid in range(1, 700):
        top.add(uid, [uid % 90, 1, 2], 1)
    top.turn()
    top.add(1000, [3, 4, 5], 1, priority=1)
    top.turn()
    top.turn()
    assert 1000 in top.finish


def test_who_waited_too_long_goes_before_any_priority():
    top = BenchTop(rows=1, max_wait_s=5.0)
    top.add(1, [1, 2, 3], 4)
    top.turn()
    top.add(2, [4, 5, 6], 4, priority=-1)
    top.clock.advance(6.0)
    top.add(3, [7, 8, 9], 4, priority=10)
    top.run()
    assert top.finish_order == [1, 2, 3]


def test_the_lowest_priority_is_retracted():
    top = BenchTop(total=100, schedule_conservativeness=0.01)
    for uid, priority in ((1, 1), (2, 0), (3, 1)):
        top.add(uid, [uid] * 8, 60, priority=priority)
    top.run()
    retracted = {uid for uid, finish in top.finish.items() if finish.num_retractions}
    assert 2 in retracted and top.finish_order[-1] == 2
