"""A request's own arithmetic, and the seeds of its samples."""

import numpy as np
import pytest

from ramet.ipc.spec import HiddenMode, LogprobSpec
from ramet.runtime.errors import ConfigError
from ramet.runtime.scheduler.features.requests import HiddenStateRequests, LogprobRequests
from ramet.runtime.scheduler.request import Request, seed_of_sample
from ramet.runtime.scheduler.rows import RowTable
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


def test_the_samples_of_a_prompt_share_its_array():
    prompt = np.array([5, 6, 7], np.int32)
    first, second = (Request(uid, prompt, make_spec(max_new_tokens=2, n=2), seed=uid) for uid in (1, 2))
    assert first.tokens is second.tokens is prompt
    assert (first.limit, first.remaining) == (5, 2)


def test_what_it_must_return_of_a_prompt_is_not_taken_from_the_cache():
    prompt = np.arange(10, dtype=np.int32)
    plain = Request(1, prompt, make_spec(), seed=0)
    with_logprobs = Request(2, prompt, make_spec(logprobs=LogprobSpec(start=3)), seed=0)
    LogprobRequests().refuse(with_logprobs, None)
    with_states = Request(3, prompt, make_spec(hidden=HiddenMode.ALL), seed=0)
    HiddenStateRequests().refuse(with_states, None)
    assert [len(each.reusable) for each in (plain, with_logprobs, with_states)] == [10, 4, 1]


def test_a_table_that_no_memory_could_hold_names_the_options():
    with pytest.raises(ConfigError, match="lower --max-running-requests or --context-length"):
        RowTable(1 << 14, 1 << 40, 1)
