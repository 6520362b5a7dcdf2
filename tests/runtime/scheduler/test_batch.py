"""What a step asks of sampling: each row its own seed and position, and no early end before min_new_tokens."""

from typing import Any

import numpy as np
import pytest
from bench_top import BenchTop
from hash_runner import VOCABULARY, expected_output
from msgspec.structs import replace

from ramet.runtime.engine.batch import Batch
from ramet.runtime.sampling.columns import SamplingColumns
from ramet.runtime.scheduler.request import seed_of_sample


def prompt_of(seed: int, length: int = 10) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def until_one_of(output: list[int], stops: set[int]) -> list[int]:
    """Up to and with the first stop."""
    ends = [i for i, token in enumerate(output) if token in stops]
    return output[: ends[0] + 1] if ends else output


@pytest.mark.parametrize("num_least", [0, 1, 5, 6, 30])
@pytest.mark.parametrize("by", ["stop_token_ids", "eos"])
def test_nothing_stops_before_min_new_tokens(num_least: int, by: str):
    prompt = prompt_of(1)
    stop = expected_output(prompt, 5)[4]
    top = BenchTop(eos_ids={stop} if by == "eos" else ())
    top.add(1, prompt, 30, min_new_tokens=num_least, **({"stop_token_ids": (stop,)} if by != "eos" else {}))
    top.run()
    whole = expected_output(prompt, 30, {stop}, num_least)
    assert stop not in whole[:num_least]
    assert top.tokens[1] == whole[:num_least] + until_one_of(whole[num_least:], {stop})
    assert len(top.tokens[1]) >= num_least


def test_every_stop_id_and_end_token_is_banned():
    prompt = prompt_of(2)
    first, second, third, *_ = dict.fromkeys(expected_output(prompt, 10))
    top = BenchTop(eos_ids={first})
    top.add(1, prompt, 20, min_new_tokens=15, stop_token_ids=(second, third))
    top.run()
    whole = expected_output(prompt, 20, {first, second, third}, 15)
    assert top.tokens[1] == whole[:15] + until_one_of(whole[15:], {first, second, third})


def test_an_ignored_end_token_is_not_banned_and_a_stop_id_is():
    prompt = prompt_of(3)
    eos, stop = expected_output(prompt, 2)
    assert eos != stop
    top = BenchTop(eos_ids={eos})
    top.add(1, prompt, 20, min_new_tokens=20, ignore_eos=True, stop_token_ids=(stop,))
    top.run()
    assert top.tokens[1] == expected_output(prompt, 20, {stop}, 20)
    assert top.tokens[1][0] == eos


@pytest.mark.parametrize("chunk", [1, 3, -1])
def test_a_ban_reaches_its_own_row_among_rows_that_draw_nothing(chunk: int):
    top = BenchTop(chunked_prefill_size=chunk)
    stops = {uid: expected_output(prompt_of(uid), 3)[2] for uid in range(1, 9)}
    for uid, stop in stops.items():
        top.add(100 + uid, prompt_of(100 + uid, 1 + uid % 2), 0)  # computes its prompt, draws no token
        top.add(uid, prompt_of(uid), 12, min_new_tokens=12 * (uid % 2), stop_token_ids=(stop,))
    top.run()
    for uid, stop in stops.items():
        whole = expected_output(prompt_of(uid), 12, {stop}, 12 * (uid % 2))
        assert top.tokens[uid] == (whole if uid % 2 else until_one_of(whole, {stop})), uid


def test_a_ban_outlives_a_retraction():
    top = BenchTop(total=160, context=160, rows=8, schedule_conservativeness=0.01)
    stops = {uid: expected_output(prompt_of(uid), 40)[35] for uid in range(1, 9)}
    for uid, stop in stops.items():
        top.add(uid, prompt_of(uid), 60, min_new_tokens=50, stop_token_ids=(stop,))
    top.run()
    assert top.scheduler.running.num_retractions > 0
    for uid, stop in stops.items():
        whole = expected_output(prompt_of(uid), 60, {stop}, 50)
        assert top.tokens[uid] == whole[:50] + until_one_of(whole[50:], {stop}), uid


@pytest.mark.parametrize("seed", [0, 7, -5])
def test_every_sample_draws_with_its_own_seed_and_counts_its_positions(seed: int):
    top = BenchTop()
    top.add(1, prompt_of(1), 4, n=3, sampling_seed=seed)
    top.run()
    assert sorted(top.runner.draws) == sorted((seed_of_sample(seed, i), at) for i in range(3) for at in range(4))


def test_a_retraction_draws_no_position_twice_and_skips_none():
    top = BenchTop(total=160, context=160, rows=8, schedule_conservativeness=0.01)
    for uid in range(1, 9):
        top.add(uid, prompt_of(uid), 60, sampling_seed=uid)
    top.run()
    assert top.scheduler.running.num_retractions > 0
    assert sorted(top.runner.draws) == [(uid, at) for uid in range(1, 9) for at in range(60)]


def test_requests_without_a_seed_get_different_ones():
    top = BenchTop()
    for uid in range(1, 9):
        top.add(uid, prompt_of(1), 1)
    top.run()
    assert len(set(top.runner.draws)) == 8


def test_the_biases_of_a_request_are_read_once():
    """256 rows of 1,024 biases: what a step needs of them is made on arrival and not again in any of 100 steps."""
    rows, steps = 256, 100
    top = BenchTop(rows=rows, total=1 << 16, deep_checks=False, check_invariants=False)
    bias = tuple((token, float(token % 7 - 3)) for token in range(1024))
    for uid in range(1, rows + 1):
        top.add(uid, [uid % VOCABULARY, 1, 2], steps + 2, logit_bias=bias)
    planned = watched(top)
    top.turn()
    for row in top.scheduler.running:
        request = row.request
        request.spec = replace(request.spec, params=replace(request.params, logit_bias=()))
    for _ in range(steps):
        top.turn()
    assert len(planned) == steps + 1
    for sampling in planned:
        assert sampling.biased is not None and sampling.biases is not None
        assert len(sampling.biases) == rows * 1024
    assert np.array_equal(planned[-1].biases[:1024], [value for _, value in bias])
    assert np.array_equal(planned[-1].biased.ids[-1024:], range(1024))


def test_only_rows_that_ask_for_a_filter_are_in_it() -> None:
    """Steps in which no row asks for one have none."""
    top = BenchTop()
    seen = watched(top)
    for uid, share in enumerate((1.0, 0.5, 0.25), 1):
        top.add(uid, prompt_of(uid), 3, temperature=1.0, typical_p=share)
    top.add(4, prompt_of(4), 9, temperature=1.0)
    top.run()
    asked = {(each.name, *each.values.tolist()) for columns in seen for each in columns.filters}
    assert asked == {("typical_p", 0.5, 0.25)}
    assert seen[-1].filters == ()


def watched(top: BenchTop) -> list[SamplingColumns]:
    """What each step from now on asks of sampling."""
    seen: list[SamplingColumns] = []
    launch = top.runner.launch

    def note(batch: Batch) -> Any:
        seen.append(batch.sampling)
        return launch(batch)

    top.runner.launch = note
    return seen
