"""When the waiting queue is put in order, and that nobody in it waits for ever."""

from bench_top import BenchTop

from ramet.runtime.scheduler.queue import WaitingQueue
from ramet.runtime.scheduler.request import Request


def counted(top: BenchTop) -> list[int]:
    """The length of the queue, each time that it is put in order."""
    lengths: list[int] = []
    order = top.scheduler.planner._policy.order

    def note(waiting: WaitingQueue, now_s: float) -> list[Request]:
        lengths.append(len(waiting))
        return order(waiting, now_s)

    top.scheduler.planner._policy.order = note  # type: ignore[method-assign]
    return lengths


def test_the_queue_is_not_ordered_in_a_step_without_prefill_budget():
    top = BenchTop(chunked_prefill_size=10)
    lengths = counted(top)
    top.add(1, list(range(90)), 2)
    top.turn()
    assert lengths == [1]
    top.add(2, [7, 8, 9], 2)
    for _ in range(7):  # the first prompt takes the whole of every step
        top.turn()
        assert "--chunked-prefill-size" in str(top.scheduler.where(2))
    assert lengths == [1]
    top.run()
    assert lengths == [1, 1] and top.finish.keys() == {1, 2}


def test_the_queue_is_ordered_when_budget_is_left():
    top = BenchTop(chunked_prefill_size=64)
    lengths = counted(top)
    top.add(1, list(range(70)), 2)
    top.turn()
    top.add(2, [7, 8, 9], 2)
    top.turn()
    assert lengths == [1, 1] and len(top.scheduler.waiting) == 0
