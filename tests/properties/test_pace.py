"""--max-itl-ms on a clock that steps move: what is planned keeps the bound, and every request ends as without it."""

from typing import Any

from bench_top import BenchTop
from delayed_runner import DelayedRunner
from hash_runner import HashRunner, expected_output
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.step_cost import StepCost, StepLoad
from ramet.runtime.scheduler.pace import HEADROOM, MIN_TOKENS

COST = StepCost(((1, 0.008), (8, 0.009), (64, 0.060), (512, 0.400)), draw_s=0.0002, read_s=1e-5, pair_s=2e-6)


class _Timed:
    """Notes what each step computes; `cost` is what it says of itself."""

    cost = COST

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.batches: list[Batch] = []

    def launch(self, batch: Batch) -> Any:
        self.batches.append(batch)
        return super().launch(batch)  # type: ignore[misc]


class TimedHash(_Timed, HashRunner):
    pass


class TimedDelayed(_Timed, DelayedRunner):
    pass


class PacedTop(BenchTop):
    """A step takes what `COST` says, times what the test says of each one."""

    def __init__(self, slowness: list[float], **options: Any) -> None:
        super().__init__(runners=(TimedHash, TimedDelayed), deep_checks=False, **options)
        self._slowness, self._known = slowness, 0

    def turn(self) -> None:
        compute = self.runner.compute

        def timed(batch: Batch) -> None:
            self.clock.advance(COST.seconds(batch.load) * self._slowness[self._known % len(self._slowness)])
            self._known += 1
            compute(batch)

        self.runner.compute = timed  # type: ignore[method-assign]
        super().turn()
        self.runner.compute = compute  # type: ignore[method-assign]


def prefill_tokens(batch: Batch) -> int:
    return int(batch.num_new.sum()) - batch.num_decode


requests = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 12), st.integers(0, 6)), min_size=2, max_size=10)


@given(requests, st.sampled_from([5.0, 20.0, 40.0, 150.0]), st.sampled_from(["off", "on"]), st.sampled_from([1, 16]))
@examples(25, 400)
def test_a_step_beside_running_requests_keeps_the_bound_and_all_end_as_without_it(
    asked: list[tuple[int, int, int]], max_itl_ms: float, overlap: str, page_size: int
) -> None:
    top = PacedTop([1.0], max_itl_ms=max_itl_ms, overlap=overlap, page_size=page_size)
    prompts = {uid: [(7 * i + uid % 3) % 90 for i in range(length)] for uid, (length, _, _) in enumerate(asked, 1)}
    coming = sorted((turn, uid, num_new) for uid, (_, num_new, turn) in enumerate(asked, 1))
    turn = 0
    while coming or not top.scheduler.idle:
        while coming and coming[0][0] <= turn:
            _, uid, num_new = coming.pop(0)
            top.add(uid, prompts[uid], num_new)
        in_output = top.scheduler.running.num_in_output
        before = len(top.runner.batches)  # type: ignore[attr-defined]
        top.turn()
        turn += 1
        assert turn < 2000, "somebody starves"
        for batch in top.runner.batches[before:]:  # type: ignore[attr-defined]
            if in_output and prefill_tokens(batch) > MIN_TOKENS:
                assert COST.seconds(batch.load) <= max_itl_ms / 1e3 * HEADROOM * 1.001
            if in_output and batch.num_decode == 0:
                assert prefill_tokens(batch) > 0
    for uid, (_, num_new, _) in enumerate(asked, 1):
        assert top.tokens[uid] == expected_output(prompts[uid], num_new)


@given(st.lists(st.sampled_from([0.5, 1.0, 1.0, 1.0, 1.0, 6.0]), min_size=3, max_size=9))
@examples(10, 100)
def test_a_disturbed_machine_slows_prompts_and_stops_none(slowness: list[float]) -> None:
    top = PacedTop(slowness, max_itl_ms=40)
    for uid in (1, 2, 3):
        top.add(uid, [uid, uid + 1], 300)
    top.turn()
    top.add(4, list(range(90)) * 5, 3)
    for _ in range(450 // MIN_TOKENS + 6):
        top.turn()
    assert len(top.tokens[4]) == 3


def test_prompts_get_the_least_where_decoding_alone_is_too_long() -> None:
    top = PacedTop([1.0], max_itl_ms=1)
    top.add(1, [1, 2], 100)
    top.turn()
    top.add(2, list(range(80)), 2)
    top.turn()
    assert prefill_tokens(top.runner.batches[-1]) == MIN_TOKENS  # type: ignore[attr-defined]


def test_without_running_requests_a_prompt_is_computed_by_whole_chunks() -> None:
    top = PacedTop([1.0], max_itl_ms=10)
    top.add(1, [i % 90 for i in range(500)], 2)
    top.turn()
    assert prefill_tokens(top.runner.batches[0]) == 500  # type: ignore[attr-defined]


def test_so_many_run_as_keep_the_bound_and_the_others_hear_why_they_wait() -> None:
    top = PacedTop([1.0], max_itl_ms=40)
    for uid in range(1, 60):
        top.add(uid, [uid, uid + 1, uid + 2], 20)
    top.turn()
    running = len(top.scheduler.running)
    load = StepLoad(running, running, 4 * running) + StepLoad(MIN_TOKENS)
    assert COST.seconds(load) <= 0.040 * HEADROOM < COST.seconds(load + StepLoad(1, 1, 4))
    waits = top.scheduler.where(59)
    assert waits is not None and "--max-itl-ms 40" in str(waits["reason"])
    top.run()
    assert len(top.finish) == 59


def test_steps_that_only_decode_say_nothing_of_steps_with_prompts() -> None:
    """Those are replayed on a CPU, so they are faster than the curve that both begin with."""
    top = PacedTop([1.0] + [0.5] * 400, max_itl_ms=60)
    for uid in range(1, 9):
        top.add(uid, [uid, uid + 1], 300)
    for _ in range(200):
        top.turn()
    top.add(20, [i % 90 for i in range(400)], 3)
    top.turn()
    load = top.runner.batches[-1].load  # type: ignore[attr-defined]
    assert load.pairs and COST.seconds(load) <= 0.060 * HEADROOM * 1.001
