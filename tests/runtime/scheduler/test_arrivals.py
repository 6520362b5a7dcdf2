"""What arrives is taken over many turns, so that running rows get their tokens between two parts of a large request."""

import gc
import weakref

import pytest
from bench_top import BenchTop
from manual_clock import ManualClock

from ramet.ipc.control import ContinueGeneration, FlushCache, PauseGeneration
from ramet.ipc.messages import FinishKind, Generate
from ramet.runtime.machine import collect_all
from ramet.runtime.scheduler.aborts import MAX_ENDED, RUNNING_COUNTS
from ramet.runtime.scheduler.arrivals import MAX_TAKEN, MIN_TAKEN, MOVE, SHARE
from ramet.runtime.scheduler.policy import WINDOW
from ramet.runtime.scheduler.process.garbage import COLLECT_EVERY_S, collecting
from ramet.runtime.scheduler.queue import BULK, WaitingQueue

LONG = 100  # tokens of the request that others must not stall
FIRST = 1000  # uid of the large request's first sequence


def running(**options: object) -> BenchTop:
    """One request has begun to draw."""
    top = BenchTop(rows=8, total=4096, deep_checks=False, check_invariants=False, **options)
    top.add(1, [1, 2, 3], LONG)
    while not top.tokens[1]:
        top.turn()
    return top


def test_thousands_of_prompts_are_queued_over_many_steps_in_their_order() -> None:
    top, turns = running(), 4
    for uid in range(FIRST, FIRST + turns * MAX_TAKEN):
        top.add(uid, [uid % 200, uid // 200], 4)
    for turn in range(turns):
        before = len(top.scheduler.waiting) + len(top.scheduler.running) + len(top.finish)
        top.turn()
        after = len(top.scheduler.waiting) + len(top.scheduler.running) + len(top.finish)
        assert after - before == MAX_TAKEN and len(top.tokens[1]) == 2 + turn
    assert top.inbox.is_empty
    left = [request.uid for request in top.scheduler.waiting]
    assert left == sorted(left)


def test_samples_of_a_prompt_are_taken_together() -> None:
    top = running()
    for i in range(6):
        top.add(FIRST + i * 200, [5, 6, 7], 4, n=128)
    top.turn()
    assert len(top.scheduler.waiting) + len(top.scheduler.running) == 1 + 4 * 128
    top.turn()
    assert top.inbox.is_empty


def num_taken(top: BenchTop, turns: int, step_s: float, each_s: float, interrupted: int | None = None) -> list[int]:
    """How many sequences each turn takes of one request, where a step and the taking of a sequence last so long.

    `interrupted`: a sequence that takes a second more.
    """
    enqueue = top.scheduler._receiver._enqueuer.enqueue

    def slowly(message: Generate) -> None:
        top.clock.advance(each_s + (message.uids[0] == interrupted))
        enqueue(message)

    top.scheduler._receiver._enqueuer.enqueue = slowly  # type: ignore[method-assign]
    top.listeners.append(lambda *_: top.clock.advance(step_s))
    top.clock.advance(1.0)
    for uid in range(FIRST, FIRST + turns * MAX_TAKEN):
        top.add(uid, [uid % 200, uid // 200], LONG)
    taken = []
    for _ in range(turns):
        before = len(top.scheduler.waiting) + len(top.scheduler.running) + len(top.finish)
        top.turn()
        taken.append(len(top.scheduler.waiting) + len(top.scheduler.running) + len(top.finish) - before)
    return taken


def test_beside_rows_of_others_taking_lasts_a_small_part_of_a_step() -> None:
    first, *later = num_taken(running(), 4, step_s=0.4, each_s=0.001)
    assert first == MAX_TAKEN  # nothing is known yet
    assert all(SHARE * 400 / MOVE - 1 <= num <= SHARE * 400 * MOVE for num in later)


def test_a_turn_that_was_interrupted_makes_the_next_ones_little_smaller() -> None:
    taken = num_taken(running(), 5, step_s=0.4, each_s=0.001, interrupted=FIRST + MAX_TAKEN + 10)
    assert min(taken) >= SHARE * 400 / MOVE**2 - 1


def test_however_long_it_lasts_a_turn_takes_some() -> None:
    assert num_taken(running(), 4, step_s=0.001, each_s=0.001)[1:] == [MIN_TAKEN] * 3


def test_alone_a_request_is_taken_as_fast_as_the_policy_looks_at_it() -> None:
    top = running()
    top.run()
    assert num_taken(top, 4, step_s=0.4, each_s=0.001) == [MAX_TAKEN] * 4


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_an_abort_of_thousands_lets_none_of_them_begin_and_is_told_over_many_steps(overlap: str) -> None:
    top, num = running(overlap=overlap), 2 * MAX_ENDED
    for uid in range(FIRST, FIRST + num):
        top.add(uid, [uid % 200, uid // 200], LONG)
    while not top.inbox.is_empty:
        top.turn()
    begun = {each.uid for each in top.scheduler.running} - {1}
    assert len(begun) == 7
    top.abort(*range(FIRST, FIRST + num))
    top.add(2, [1, 2, 4], 4)
    ended = []
    while len(top.finish) < num:
        before, drawn = len(top.finish), len(top.tokens[1])
        top.turn()
        ended.append(len(top.finish) - before)
        assert len(top.tokens[1]) == drawn + 1
        assert {each.uid for each in top.scheduler.running} <= begun | {1, 2}
    beside = 7 * (RUNNING_COUNTS - 1)  # what running ones count more
    assert ended == [MAX_ENDED - beside, MAX_ENDED, beside] and top.inbox.is_empty
    assert all(top.finish[uid].kind is FinishKind.ABORT for uid in range(FIRST, FIRST + num))
    top.run()
    assert len(top.tokens[1]) == LONG and len(top.tokens[2]) == 4 and len(top.finish) == num + 2


def test_a_scheduler_with_half_an_abort_neither_sleeps_nor_is_idle() -> None:
    top = BenchTop(rows=4, deep_checks=False)
    for uid in range(FIRST, FIRST + MAX_ENDED + 1):
        top.add(uid, [uid % 200, uid // 200], LONG)
    while not top.inbox.is_empty:
        top.scheduler.receive(block=False)
    top.abort(*range(FIRST, FIRST + MAX_ENDED + 1))
    top.scheduler.receive(block=False)
    assert not len(top.scheduler.waiting) and not top.scheduler.idle and not top.scheduler.waits
    top.scheduler.receive(block=False)
    assert top.scheduler.idle and top.scheduler.waits


def test_a_running_request_that_ends_or_is_retracted_before_its_abort_is_told_ends_once() -> None:
    top = running()
    top.add(2, [4, 5, 6], 3)
    for uid in range(FIRST, FIRST + MAX_ENDED):
        top.add(uid, [uid % 200, uid // 200], 4)
    while not top.inbox.is_empty:
        top.scheduler.receive(block=False)
    top.turn()
    top.abort(*range(FIRST + MAX_ENDED - 1, FIRST - 1, -1), 2, 1, 1)
    top.scheduler.receive(block=False)
    [back] = [top.scheduler.running.retract(each) for each in top.scheduler.running if each.uid == 1]
    top.scheduler.waiting.add(back)
    top.run()
    assert top.finish[1].kind is FinishKind.ABORT and len(top.finish) == MAX_ENDED + 2


def test_thousands_leave_the_queue_as_one_after_the_other_would() -> None:
    def queue(top: BenchTop) -> WaitingQueue:
        for uid in range(FIRST, FIRST + 3 * BULK):
            top.add(uid, [7, uid % 200, uid // 200], 4, priority=uid % 3)
        top.scheduler.receive(block=False)
        found: WaitingQueue = top.scheduler.waiting
        return found

    tops = BenchTop(rows=4), BenchTop(rows=4)
    one, many = queue(tops[0]), queue(tops[1])
    leaving = [*range(FIRST, FIRST + 3 * BULK, 2), 5]
    removed = [request.uid for uid in leaving if (request := one.remove(uid)) is not None]
    assert list(many.remove_all(leaving)) == removed
    for left in (one, many):
        assert len(left) == len(left.first(len(left))) == len(left.highest(len(left)))
    assert [each.uid for each in one] == [each.uid for each in many]
    assert [each.uid for each in one.highest(99)] == [each.uid for each in many.highest(99)]
    assert one.num_tokens == many.num_tokens


def test_thousands_are_held_and_let_go_in_their_order() -> None:
    top = BenchTop(rows=4)
    for at in range(4 * BULK):
        top.clock.advance(1)
        top.add(FIRST + at, [7, at % 200, at // 200], 4, priority=at % 3)
    top.scheduler.receive(block=False)
    waiting: WaitingQueue = top.scheduler.waiting
    arrivals, ranks, num_tokens = list(waiting), waiting.highest(4 * BULK), waiting.num_tokens
    waiting.hold_after(arrivals[BULK].arrival_s)
    assert list(waiting) == arrivals[: BULK + 1] and waiting.num_held == 3 * BULK - 1
    assert waiting.highest(4 * BULK) == [each for each in ranks if each in arrivals[: BULK + 1]]
    waiting.let_go()
    assert list(waiting) == arrivals and waiting.highest(4 * BULK) == ranks and not waiting.num_held
    waiting.take_weights(2)
    assert list(waiting) == arrivals and {each.weights for each in arrivals} == {2}
    assert waiting.num_tokens == num_tokens


def test_as_many_are_taken_as_the_policy_orders() -> None:
    """Fewer would hide prompts that it would choose among if all had been queued at once."""
    assert MAX_TAKEN >= WINDOW


def test_garbage_is_collected_while_nothing_runs_and_not_at_each_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, beats, collected = ManualClock(), list[bool](), list[float]()
    monkeypatch.setattr("gc.collect", lambda: collected.append(clock()))
    monkeypatch.setattr("gc.freeze", lambda: None)
    beat = collecting(beats.append, clock)
    start = clock()
    for part, idle in [(0.25, True), (1, False), (0.25, True), (0.25, True), (1, True)]:
        clock.advance(part * COLLECT_EVERY_S)
        beat(idle)
    assert collected == [start + 1.5 * COLLECT_EVERY_S, clock()] and len(beats) == 5


def test_what_is_in_use_is_looked_through_once_and_garbage_of_it_is_collected_on_demand() -> None:
    clock, nobody, kept = ManualClock(), list[weakref.ref[Circle]](), [Circle() for _ in range(100)]
    beat = collecting(lambda _: None, clock)
    before = gc.get_freeze_count()
    try:
        for _ in range(2):
            nobody.append(weakref.ref(Circle()))
            clock.advance(COLLECT_EVERY_S)
            beat(True)
        assert [each() for each in nobody] == [None, None]
        assert gc.get_freeze_count() >= before + len(kept)
        left = weakref.ref(kept.pop())
        gc.collect()
        assert left() is not None
        collect_all()
        assert left() is None
    finally:
        gc.unfreeze()


class Circle:
    """Refers to itself."""

    def __init__(self) -> None:
        self.own = self


def test_requests_leave_nothing_that_only_a_collection_frees() -> None:
    top = running()

    def serve(uid: int) -> None:
        top.add(uid, [uid % 250, 7, 8], 5, n=2)
        top.add(uid + 2, [uid % 250, 7, 9], 5, prefix_lease_s=10.0)
        top.add(uid + 3, [uid % 250, 7, 10], 50)
        top.turn()
        top.abort(uid + 3)
        top.turn()
        top.control(PauseGeneration, retract=True)
        top.control(ContinueGeneration)
        top.run()
        top.control(FlushCache)
        top.turn()

    serve(FIRST)
    gc.collect()
    gc.disable()
    try:
        for num in range(1, 9):
            serve(FIRST + 10 * num)
        assert gc.collect() == 0
    finally:
        gc.enable()
