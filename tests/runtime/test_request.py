"""A request's own arithmetic, and the seeds of its samples."""

import numpy as np
import pytest

from ramet.runtime.request import Request, seed_of_sample
from tests.fakes.specs import make_spec


@pytest.mark.parametrize("seed", [0, 1, -1, 42, 2**63 - 1, -(2**63)])
def test_sample_zero_keeps_the_seed_as_64_bits(seed: int):
    assert seed_of_sample(seed, 0) == seed % 2**64


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63 - 1, -(2**63)])
def test_seeds_of_samples_are_64_bits_and_all_different(seed: int):
    seeds = [seed_of_sample(seed, sample) for sample in range(128)]
    assert len(set(seeds)) == 128 and all(0 <= s < 2**64 for s in seeds)
    assert np.array(seeds, dtype=np.uint64).tolist() == seeds


def test_neighbouring_seeds_share_no_sample():
    """Clients count their seeds up; sample 1 of seed 7 must not be sample 0 of seed 8."""
    seeds = [seed_of_sample(seed, sample) for seed in range(200) for sample in range(16)]
    assert len(set(seeds)) == len(seeds)


def test_half_of_all_bits_differ_between_samples():
    flips = [(seed_of_sample(5, s) ^ seed_of_sample(5, s + 1)).bit_count() for s in range(1, 100)]
    assert 28 < np.mean(flips) < 36


def test_what_is_known_grows_and_what_remains_shrinks():
    request = Request(1, np.array([5, 6, 7], np.int32), make_spec(max_new_tokens=2), seed=0)
    assert (request.num_output, request.remaining, request.total) == (0, 2, 3)
    request.append(8)
    assert request.known.tolist() == [5, 6, 7, 8] and request.output.tolist() == [8]
    assert (request.num_output, request.remaining) == (1, 1)
    request.append(9)
    assert request.output.tolist() == [8, 9] and request.remaining == 0
