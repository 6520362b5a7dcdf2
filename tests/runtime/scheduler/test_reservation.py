"""Memory that is promised before it is needed, and what happens when too little was: who gives way, what it keeps."""

from itertools import pairwise

import numpy as np
import pytest
from bench_top import BenchTop
from hash_runner import VOCABULARY, expected_output

from ramet.runtime.cache.prefix import PageAllocator, PrefixCache, RowAllocator
from ramet.runtime.scheduler.deferred import DeferredFrees
from ramet.runtime.scheduler.memory import RowMemory
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.reserve_ratio import DECAY_STEPS, ReserveRatio
from ramet.runtime.scheduler.retraction import Retraction
from ramet.runtime.scheduler.rows import RowTable, RunningRequest
from ramet.runtime.scheduler.running import RunningSet
from tests.fakes.specs import make_spec


def prompt_of(seed: int, length: int = 10) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def loaded(conservativeness: float) -> BenchTop:
    """Three requests of 10 + 20 tokens each; two of them fit whole."""
    top = BenchTop(total=70, context=70, rows=8, schedule_conservativeness=conservativeness)
    for uid in (1, 2, 3):
        top.add(uid, prompt_of(uid), 20)
    return top


def until_retraction(top: BenchTop) -> None:
    while not top.scheduler.running.num_retractions:
        top.turn()
        assert not top.scheduler.idle, "the load ended without a retraction"


# -- the promise ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("conservativeness", "retracts"), [(0.01, True), (1.0, False), (10.0, False)])
def test_conservativeness_trades_retractions_for_fewer_at_once(conservativeness: float, retracts: bool):
    top = loaded(conservativeness)
    most = 0
    while not top.scheduler.idle or not top.finish:
        top.turn()
        most = max(most, len(top.scheduler.running))
    assert (top.scheduler.running.num_retractions > 0) == retracts
    assert (most > 2) == retracts
    assert all(top.tokens[uid] == expected_output(prompt_of(uid), 20) for uid in (1, 2, 3))


def test_those_admitted_in_one_step_count_against_each_other():
    top = loaded(1.0)
    top.turn()
    assert len(top.scheduler.running) == 2


def test_a_huge_output_is_not_reserved_whole():
    top = BenchTop(total=30_000, context=30_000, rows=8, deep_checks=False, schedule_conservativeness=10.0)
    top.add(1, prompt_of(1), 20_000)
    top.add(2, prompt_of(2), 20_000)
    top.turn()
    assert len(top.scheduler.running) == 2  # 2 x 4096 promised, not 2 x 20,000


def test_the_ratio_falls_with_every_step_down_to_its_floor():
    ratio = ReserveRatio(1.0)
    values = [ratio.value]
    for _ in range(DECAY_STEPS + 50):
        ratio.step()
        values.append(ratio.value)
    assert values[0] == pytest.approx(0.7) and values[-1] == pytest.approx(0.1)
    assert all(a > b for a, b in pairwise(values[:DECAY_STEPS]))
    assert values[DECAY_STEPS // 2] == pytest.approx((values[0] + values[-1]) / 2)
    assert values[-1] == pytest.approx(values[DECAY_STEPS])


@pytest.mark.parametrize(("conservativeness", "start"), [(0.01, 0.007), (1.0, 0.7), (10.0, 1.0)])
def test_the_ratio_starts_in_proportion_and_is_at_most_one(conservativeness: float, start: float):
    assert BenchTop(schedule_conservativeness=conservativeness).reserve_ratio == pytest.approx(start)


def test_the_ratio_falls_while_requests_run_and_is_reset_when_idle():
    top = BenchTop()
    start = top.reserve_ratio
    top.add(1, prompt_of(1), 20)
    for _ in range(10):
        top.turn()
    fallen = top.reserve_ratio
    assert fallen < start
    top.run()
    assert top.reserve_ratio == start


def test_the_ratio_rises_after_a_retraction_and_never_above_one():
    top = loaded(0.01)
    top.turn()
    before = top.reserve_ratio
    until_retraction(top)
    assert before < 0.01 < 10 * before < top.reserve_ratio <= 1


# -- who gives way --------------------------------------------------------------------------------------------------


class Bench:
    """A running set alone, with requests that decode."""

    def __init__(self, total: int) -> None:
        self.cache = PrefixCache(PageAllocator(total, 1))
        memory = RowMemory(self.cache, RowTable(8, 64, 1), DeferredFrees(self.cache))
        self.running = RunningSet(memory, RowAllocator(8), lambda alone: False)
        self.retraction = Retraction(self.running, self.fail)
        self.steps = 0

    def fail(self, running: RunningRequest, fact: str) -> None:
        raise AssertionError(f"request {running.uid} {fact}")

    def run(self, uid: int, num_output: int, arrival_s: float, num_prompt: int = 4) -> RunningRequest:
        """Everything it knows but its newest token is computed."""
        prompt = np.arange(num_prompt, dtype=np.int32) + 1000 * uid
        request = Request(uid, prompt, make_spec(max_new_tokens=50), seed=0, arrival_s=arrival_s)
        request.tokens = np.concatenate([prompt, np.arange(num_output, dtype=np.int32) + 1000 * uid + 100])
        lease, prefix = self.cache.acquire(request.tokens, ())
        running = self.running.take(request, lease, prefix)
        assert running is not None
        self.steps += 1
        row, known, table = running.row, len(request.tokens), self.running.table
        self.running.advance(self.steps, np.array([row]), np.array([known]), np.array([0]))
        table.tokens[row, known], table.totals[row], table.applied[row] = 1000 * uid + 99, known + 1, known
        self.running.memory.deferred.confirm(self.steps)
        return running


def test_the_one_with_the_fewest_output_tokens_gives_way_however_early_it_came():
    bench = Bench(4 + 9 + 4 + 3 + 4 + 6)  # full: the next tokens do not fit
    bench.run(1, num_output=9, arrival_s=3.0)
    fewest = bench.run(2, num_output=3, arrival_s=1.0)
    bench.run(3, num_output=6, arrival_s=2.0)
    assert bench.retraction.make_room() == [fewest.request]


@pytest.mark.parametrize("order", [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
def test_among_equals_the_latest_arrival_gives_way(order: tuple[int, ...]):
    bench = Bench(3 * 9)
    running = {uid: bench.run(uid, num_output=5, arrival_s=float(uid)) for uid in order}
    assert bench.retraction.make_room() == [running[3].request]


def test_no_more_give_way_than_must():
    bench = Bench(4 * 9)
    for uid in range(1, 5):
        bench.run(uid, num_output=5, arrival_s=float(uid))
    assert len(bench.retraction.make_room()) == 1
    assert len(bench.running) == 3 and bench.running.num_retractions == 1
    assert all(len(each.slots) >= each.total for each in bench.running)


def test_a_retracted_request_finds_outputs_of_its_own_in_the_cache():
    top = BenchTop(total=96, context=96, rows=2, page_size=16, schedule_conservativeness=0.01, schedule_policy="fcfs")
    top.add(1, prompt_of(1), 70)
    for _ in range(36):
        top.turn()
    top.add(2, prompt_of(2), 70)
    until_retraction(top)
    (waiting,) = top.scheduler.waiting
    computed = 0
    while top.scheduler.running.get(2) is None:
        others, before = len(top.scheduler.running), top.runner.computed_tokens
        top.turn()
        computed = top.runner.computed_tokens - before - others
    assert waiting.uid == 2 and len(waiting.tokens) - computed == 16 > waiting.prompt_len
    top.run()
    assert top.tokens[2] == expected_output(prompt_of(2), 70)


def test_a_retraction_is_no_second_opening_and_keeps_the_first_cached_count():
    top = loaded(0.01)
    top.run()
    assert top.scheduler.running.num_retractions > 0
    assert sum(len(step.opened) for step in top.told) == sum(len(step.closed) for step in top.told) == 3
    assert all(opened.cached_tokens == 0 for opened in top.opened.values())
