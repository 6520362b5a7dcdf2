"""Penalties count a request's own output and nothing else: over chunks, retraction, samples and neighbours."""

import numpy as np
import pytest
from bench_top import BenchTop
from hash_runner import VOCABULARY, expected_output, expected_without_repeats


def prompt_of(seed: int, length: int = 10) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


@pytest.mark.parametrize("chunk", [1, 7, -1])
@pytest.mark.parametrize("penalty", ["frequency_penalty", "presence_penalty", "repetition_penalty"])
def test_penalised_rows_count_their_own_output_beside_rows_that_do_not(chunk: int, penalty: str):
    top = BenchTop(chunked_prefill_size=chunk)
    for uid in range(1, 9):
        top.add(uid, prompt_of(uid), 30, **({penalty: 0.5} if uid % 2 else {}))
    top.run()
    for uid in range(1, 9):
        expected = expected_without_repeats if uid % 2 else expected_output
        assert top.tokens[uid] == expected(prompt_of(uid), 30)


def test_a_retracted_request_goes_on_with_its_counts():
    top = BenchTop(total=160, schedule_conservativeness=0.01)
    for uid in range(1, 9):
        top.add(uid, prompt_of(uid), 60, presence_penalty=1.0)
    top.run()
    assert sum(finish.num_retractions for finish in top.finish.values()) > 0
    for uid in range(1, 9):
        assert top.tokens[uid] == expected_without_repeats(prompt_of(uid), 60)


def test_every_sample_of_a_prompt_has_its_own_counts():
    top = BenchTop()
    top.add(1, prompt_of(1), 20, n=4, frequency_penalty=1.0)
    top.run()
    assert all(top.tokens[uid] == expected_without_repeats(prompt_of(1), 20) for uid in range(1, 5))


def test_a_prompt_counts_as_seen_only_where_the_option_says_so():
    prompt = list(range(40))
    for scope, seen in (("generated", ()), ("all", prompt)):
        top = BenchTop(repetition_penalty_scope=scope)
        top.add(1, prompt, 20, repetition_penalty=1.5)
        top.run()
        assert top.tokens[1] == expected_without_repeats(prompt, 20, seen)


def test_more_penalised_requests_than_slots_wait_and_let_others_pass():
    top = BenchTop(max_penalised_requests=2)
    for uid in range(1, 6):
        top.add(uid, prompt_of(uid), 10, presence_penalty=1.0)
    top.add(6, prompt_of(6), 10)
    top.turn()
    assert top.features.penalties.slots.num_free == 0 and len(top.scheduler.running) == 3
    assert "--max-penalised-requests" in str(top.scheduler.where(3))
    top.run()
    assert all(top.tokens[uid] == expected_without_repeats(prompt_of(uid), 10) for uid in range(1, 6))
    assert top.features.penalties.slots.num_taken == 0


def test_an_abort_gives_the_penalty_slot_back():
    top = BenchTop()
    top.add(1, prompt_of(1), 30, presence_penalty=1.0)
    top.turn()
    assert top.features.penalties.slots.num_taken == 1
    top.abort(1)
    top.run()
    assert top.features.penalties.slots.num_taken == 0
