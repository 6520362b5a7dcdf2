"""How variants are compared: every one comes first once, medians have an interval, ratios stay inside a round."""

from itertools import pairwise

import pytest

from ramet.bench import penalties, tuning
from ramet.bench.penalties import PenaltyRun
from ramet.bench.rounds import interval, turned


def test_another_variant_comes_first_in_every_round():
    orders = [turned(["a", "b", "c"], number) for number in range(6)]
    assert [order[0] for order in orders] == list("abcabc")
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert all(one != other for one, other in pairwise(orders))


@pytest.mark.parametrize(
    ("num", "out"),  # out of what stands in tables of the sign test: values left out at each end for 95 %
    [(3, 0), (7, 0), (8, 0), (9, 1), (11, 1), (12, 2), (15, 3), (20, 5)],
)
def test_the_interval_holds_the_median_in_95_of_100(num: int, out: int):
    values = [float((7 * i) % num) for i in range(num)] if num % 7 else [float(i) for i in range(num)]
    assert interval(values) == (float(out), float(num - 1 - out))


def test_a_cost_is_a_share_of_the_baseline_of_the_same_round():
    baseline = [PenaltyRun(100.0, 10.0), PenaltyRun(50.0, 20.0), PenaltyRun(200.0, 5.0)]
    runs = [PenaltyRun(97.0, 11.0), PenaltyRun(49.0, 21.0), PenaltyRun(190.0, 6.0)]
    summed = penalties.summed(runs, baseline)
    assert summed["cost"] == 0.03 and summed["cost_interval"] == [0.02, 0.05] and summed["cpu_us_per_token"] == 11.0


def test_a_ratio_is_of_one_round():
    baseline = [{"tokens_per_s": 100.0}, {"tokens_per_s": 10.0}, {"tokens_per_s": 50.0}]
    runs = [{"tokens_per_s": 50.0}, {"tokens_per_s": 20.0}, {"tokens_per_s": 25.0}]
    assert tuning.summed(runs, baseline) == {"tokens_per_s": 25.0, "ratio": {"tokens_per_s": 0.5}}
