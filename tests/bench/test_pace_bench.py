"""What `ramet bench pace` makes of the times of streams."""

import pytest

from ramet.bench.pace import PaceRun, summed
from ramet.bench.stalls import StallStream


def test_a_gap_counts_where_it_ends() -> None:
    assert StallStream([1.0, 2.0, 4.0, 7.0, 11.0]).gaps(start=2.0, end=7.0) == [2.0, 3.0]


def test_gaps_of_all_rounds_are_taken_together_and_rates_are_medians() -> None:
    runs = [PaceRun([10.0, 20.0], 5.0, 100.0), PaceRun([30.0], 7.0, 300.0), PaceRun([40.0, 50.0], 9.0, 200.0)]
    found = summed(runs)
    assert (found["p50_ms"], found["max_ms"]) == (30.0, 50.0) and found["p99_ms"] == pytest.approx(49.6)
    assert (found["tokens_per_s"], found["prompt_tokens_per_s"]) == (7.0, 200.0)
