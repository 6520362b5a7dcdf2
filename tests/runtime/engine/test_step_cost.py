"""The seconds of a step as a function of what it computes, and what is chosen by it."""

from pathlib import Path

import numpy as np
import pytest
from steps import make_batch
from tiny_model import make_tiny

from ramet.runtime.config import Args, CacheArgs, ModelArgs
from ramet.runtime.engine.runner import ModelRunner
from ramet.runtime.engine.step_cost import MAX_CHUNK, MIN_CHUNK, StepCost, StepLoad
from ramet.runtime.scheduler.features.pace import Prediction


def test_the_load_of_a_batch_counts_each_pair_that_is_seen() -> None:
    ids = {row: np.arange(40) for row in (1, 2, 3)}
    load = make_batch([(1, 6, 7), (2, 2, 5), (3, 0, 30)], ids, ids, draws=[0, 1]).load
    pairs = [(new, seen) for start, end in ((2, 5), (0, 30)) for new in range(start, end) for seen in range(new + 1)]
    assert load == StepLoad(tokens=34, draws=2, reads=7, pairs=len(pairs))
    assert StepLoad.of_extend(2, 3) + StepLoad.of_extend(0, 30) + StepLoad(1, 0, 7) == StepLoad(34, 2, 7, len(pairs))
    assert StepLoad.of_extend(6, 1) == StepLoad(1, 1, 7, 0)


def test_seconds_lie_on_the_curve_and_beyond_it_grow_with_the_tokens() -> None:
    cost = StepCost(((1, 1.0), (11, 3.0), (20, 12.0)), draw_s=0.5, read_s=0.1, pair_s=0.01)
    assert [cost.layers_s(num) for num in (0, 1, 6, 11, 20, 40)] == [0.0, 1.0, 2.0, 3.0, 12.0, 24.0]
    assert cost.seconds(StepLoad(6, 2, 10, 100)) == pytest.approx(2.0 + 1.0 + 1.0 + 1.0)


@pytest.mark.parametrize(
    ("token_s", "chunk"), [(1e-6, MAX_CHUNK), (0.0004, 1024), (0.0009, 512), (0.002, MIN_CHUNK), (1.0, MIN_CHUNK)]
)
def test_a_chunk_is_as_large_as_half_a_second_allows(token_s: float, chunk: int) -> None:
    assert StepCost(((1, token_s), (128, 128 * token_s)), 0.0, 0.0, 0.0).chunk == chunk


COST = StepCost(((1, 0.008), (64, 0.064)), draw_s=0.0001, read_s=1e-6, pair_s=1e-7)
DECODE, MIXED = StepLoad(8, 8, 4000), StepLoad(48, 9, 4000, 20_000)


def test_a_prediction_learns_what_steps_really_take() -> None:
    truth = StepCost(((1, 0.008), (64, 0.064)), draw_s=0.0004, read_s=4e-6, pair_s=3e-7)
    prediction = Prediction(COST)
    for _ in range(200):
        for load in (DECODE, MIXED):
            prediction.drift()
            prediction.learn(load, truth.seconds(load))
    for load in (DECODE, MIXED):
        assert prediction.seconds(load) == pytest.approx(truth.seconds(load), rel=0.02)


def test_one_disturbed_step_moves_a_prediction_by_little_and_a_slower_machine_by_all() -> None:
    prediction = Prediction(COST)
    for _ in range(30):
        prediction.drift()
        prediction.learn(DECODE, COST.seconds(DECODE))
    prediction.learn(DECODE, 50 * COST.seconds(DECODE))
    assert prediction.seconds(DECODE) == pytest.approx(COST.seconds(DECODE), rel=0.05)
    for _ in range(100):
        prediction.drift()
        prediction.learn(DECODE, 2 * COST.seconds(DECODE))
    assert prediction.seconds(DECODE) == pytest.approx(2 * COST.seconds(DECODE), rel=0.05)


def test_a_runner_measures_itself_when_it_starts(tmp_path: Path) -> None:
    args = Args(model=ModelArgs(model_path=str(make_tiny(tmp_path))), cache=CacheArgs(max_total_tokens=600))
    cost = ModelRunner(args, lambda name, seconds: None).cost
    sizes, seconds = zip(*cost.points, strict=True)
    assert sizes[:2] == (1, 8) and sizes[-1] < 600
    assert seconds[0] > 0 and cost.draw_s >= 0 and cost.read_s > 0 and cost.pair_s > 0
