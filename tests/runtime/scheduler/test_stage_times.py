"""When a sequence passed each stage, and what those that wait wait for."""

import numpy as np
import pytest
from bench_top import BenchTop
from hash_runner import VOCABULARY

from ramet.ipc.control import GetState
from ramet.ipc.stats import WaitKind
from ramet.runtime.scheduler.stage_times import MAX_CHUNKS, StageTimes


def prompt_of(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def run(top: BenchTop) -> None:
    """To the end, a second for each turn."""
    while not top.scheduler.idle:
        top.clock.advance(1.0)
        top.turn()


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_stages_come_in_order(overlap: str) -> None:
    top = BenchTop(overlap=overlap)
    top.add(1, prompt_of(1, 20), 5)
    top.turn()
    run(top)
    times = top.times[1]
    assert 0 < times.queued_s <= times.admitted_s <= times.prefilled_s < times.ended_s


def test_the_queue_time_is_that_until_admission() -> None:
    top = BenchTop(rows=1)
    top.add(1, prompt_of(1, 20), 5)
    top.add(2, prompt_of(2, 20), 5)
    top.turn()
    run(top)
    first, second = top.times[1], top.times[2]
    assert first.queued_s == first.admitted_s
    assert second.admitted_s >= first.ended_s


def test_chunks_of_a_traced_prompt_are_told_and_hold_all_of_it() -> None:
    top = BenchTop(chunked_prefill_size=8)
    top.add(1, prompt_of(1, 20), 3, traced=True)
    top.add(9, prompt_of(9, 20), 3)
    top.turn()
    run(top)
    times = top.times[1]
    assert [chunk.num_tokens for chunk in times.chunks] == [8, 8, 4]
    edges = [edge for chunk in times.chunks for edge in (chunk.start_s, chunk.end_s)]
    assert edges == sorted(edges)
    assert times.admitted_s <= edges[0] and edges[-1] == times.prefilled_s
    assert top.times[9].chunks == ()


def test_a_bounded_number_of_chunks_is_kept() -> None:
    times = StageTimes(1.0, None, True)
    for _ in range(MAX_CHUNKS + 5):
        times.computed(1.0, 2.0, 1)
    assert len(times.until(3.0).chunks) == MAX_CHUNKS


def test_a_retracted_request_keeps_its_first_times() -> None:
    top = BenchTop(total=100, context=100, schedule_conservativeness=0.01)
    for uid in (1, 2, 3):
        top.add(uid, prompt_of(uid, 20), 25)
    top.turn()
    run(top)
    retracted = [uid for uid, finish in top.finish.items() if finish.num_retractions]
    assert retracted
    for uid in retracted:
        times = top.times[uid]
        assert times.queued_s <= times.admitted_s <= times.prefilled_s < times.ended_s


def test_one_that_never_ran_has_no_times_but_those_of_the_queue() -> None:
    top = BenchTop(rows=1)
    top.add(1, prompt_of(1, 20), 50)
    top.add(2, prompt_of(2, 20), 5)
    top.turn()
    top.abort(2)
    top.turn()
    times = top.times[2]
    assert times.queued_s and times.ended_s and not times.admitted_s and not times.prefilled_s


def by_reason(top: BenchTop) -> dict[str, int]:
    stats = top.reporter.stats()
    found = dict(stats.waiting_by_reason)
    assert sum(found.values()) == stats.waiting_requests
    return found


def test_those_behind_a_full_row_wait_for_rows() -> None:
    top = BenchTop(rows=1)
    for uid in range(1, 5):
        top.add(uid, prompt_of(uid, 5), 50)
    top.turn()
    assert by_reason(top) == {WaitKind.ROWS.value: 3}


def test_reasons_are_counted_apart() -> None:
    top = BenchTop(chunked_prefill_size=120, max_penalised_requests=1)
    shared = prompt_of(1, 100)
    top.add(1, [*shared, 1], 5, presence_penalty=0.5)
    top.add(2, [*shared, 2], 5)
    top.add(3, prompt_of(3, 5), 5, presence_penalty=0.5)
    top.turn()
    assert by_reason(top) == {WaitKind.PREFIX.value: 1, WaitKind.PENALTIES.value: 1}


def test_those_behind_one_that_needs_memory_wait_for_memory() -> None:
    top = BenchTop(total=100, context=100)
    for uid in (1, 2, 3):
        top.add(uid, prompt_of(uid, 60), 30)
    top.turn()
    assert by_reason(top) == {WaitKind.MEMORY.value: 2}


def test_one_that_was_aborted_is_counted_for_no_reason() -> None:
    top = BenchTop(total=100, context=100)
    for uid in (1, 2, 3):
        top.add(uid, prompt_of(uid, 60), 30)
    top.turn()
    top.abort(2)
    top.scheduler.receive(block=False)
    assert sum(by_reason(top).values()) == 1


def test_the_live_state_has_the_reasons() -> None:
    top = BenchTop(rows=1)
    for uid in (1, 2):
        top.add(uid, prompt_of(uid, 5), 50)
    top.turn()
    top.control(GetState)
    top.turn()
    assert b'"waiting_by_reason":{"rows":1}' in top.replies[0].body


def test_every_step_is_in_the_histogram_with_the_tokens_that_it_computed() -> None:
    top = BenchTop(chunked_prefill_size=16)
    top.add(1, prompt_of(1, 20), 3)
    top.run()
    stats = top.reporter.stats()
    assert sum(stats.step_sizes) == stats.steps
    assert stats.step_tokens == 20 + 2  # the third token is drawn and not computed


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_a_plan_ends_by_the_clock_that_it_began_by(overlap: str) -> None:
    """Of two clocks, read one after the other, it could seem to end after what follows it has begun."""
    top = BenchTop(overlap=overlap)
    plans: list[tuple[float, float]] = []
    top.listeners.append(lambda _, __, times: plans.append((times.begun_s, times.plan_s)))
    top.add(1, prompt_of(1, 20), 5)
    top.turn()
    run(top)
    assert plans and {took for _, took in plans} == {0.0}  # the clock stands still within a turn
