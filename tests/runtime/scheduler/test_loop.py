"""The scheduler's promises, on real parts and a model that is a hash of what it can read."""

import json

import numpy as np
import pytest
from bench_top import BenchTop
from hash_runner import VOCABULARY, expected_output

from ramet.ipc.control import FlushCache, GetState
from ramet.ipc.messages import FinishKind


def prompt_of(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("chunk", [1, 7, 64, -1])
@pytest.mark.parametrize("cache_off", [False, True])
def test_output_does_not_depend_on_pages_chunks_or_cache(page_size: int, chunk: int, cache_off: bool):
    top = BenchTop(page_size=page_size, chunked_prefill_size=chunk, disable_radix_cache=cache_off)
    prompts = {uid: prompt_of(uid % 5, 1 + 7 * uid) for uid in range(1, 24)}  # every fifth shares a prefix
    for uid, prompt in prompts.items():
        top.add(uid, prompt, uid % 9)
    top.run()
    for uid, prompt in prompts.items():
        assert top.tokens[uid] == expected_output(prompt, uid % 9), uid
        assert top.finish[uid].kind is FinishKind.LENGTH and top.finish[uid].length == uid % 9


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("length", [1, 2, 16, 17, 33, 64])
def test_a_repeated_prompt_reports_all_whole_pages_but_its_last_token(page_size: int, length: int):
    top = BenchTop(page_size=page_size)
    prompt = prompt_of(1, length)
    top.add(1, prompt, 4)
    top.run()
    top.add(2, prompt, 4)
    top.run()
    assert top.opened[1].cached_tokens == 0
    assert top.opened[2].cached_tokens == page_size * ((length - 1) // page_size)


def test_64_requests_that_share_1024_tokens_compute_them_once():
    top = BenchTop(total=8192, context=2048, chunked_prefill_size=256, deep_checks=False)
    shared = prompt_of(0, 1024)
    prompts = {uid: [*shared, uid, *prompt_of(uid, 7)] for uid in range(1, 65)}
    for uid, prompt in prompts.items():
        top.add(uid, prompt, 4)
    top.run()
    own = 64 * (8 + 3)  # the last of four new tokens is never computed
    assert 1024 + own <= top.runner.computed_tokens <= 1024 + own + 256
    assert all(top.tokens[uid] == expected_output(prompt, 4) for uid, prompt in prompts.items())


def test_samples_of_one_prompt_share_its_prefill():
    top = BenchTop()
    prompt = prompt_of(3, 200)
    top.add(1, prompt, 2, n=8)
    top.run()
    assert top.runner.computed_tokens == 200 + 7 * 1 + 8 * 1
    assert all(top.tokens[uid] == expected_output(prompt, 2) for uid in range(1, 9))


def test_waiting_samples_hold_one_prompt_together():
    top = BenchTop(rows=1)
    top.add(1, prompt_of(3, 200), 2, n=16)
    top.turn()
    waiting = [top.scheduler.waiting.get(uid) for uid in range(2, 17)]
    assert len({id(request.tokens) for request in waiting}) == 1
    top.run()


def test_retracted_requests_continue_exactly_where_they_were():
    top = BenchTop(total=160, context=160, rows=8, schedule_conservativeness=0.01)
    prompts = {uid: prompt_of(uid, 10) for uid in range(1, 9)}
    for uid, prompt in prompts.items():
        top.add(uid, prompt, 60)
    top.run()
    assert top.scheduler.running.num_retractions > 0
    assert any(f.num_retractions > 0 for f in top.finish.values())
    for uid, prompt in prompts.items():
        assert top.tokens[uid] == expected_output(prompt, 60), uid


@pytest.mark.parametrize("page_size", [1, 16])
def test_abort_of_neighbours_harms_nobody_and_returns_every_slot(page_size: int):
    top = BenchTop(total=1024, context=512, page_size=page_size, chunked_prefill_size=32)
    prompts = {uid: prompt_of(uid % 3, 60 + uid) for uid in range(1, 31)}
    for uid, prompt in prompts.items():
        top.add(uid, prompt, 20)
    rng = np.random.default_rng(0)
    victims = set(rng.choice(range(1, 31), 15, replace=False).tolist())
    for uid in victims:
        for _ in range(int(rng.integers(0, 4))):
            top.turn()
        top.abort(uid)
    top.run()
    for uid, prompt in prompts.items():
        if uid not in victims:
            assert top.tokens[uid] == expected_output(prompt, 20)
        else:
            assert top.finish[uid].kind in (FinishKind.ABORT, FinishKind.LENGTH)
            assert top.tokens[uid] == expected_output(prompt, 20)[: len(top.tokens[uid])]
    assert top.scheduler.cache.tree.locked_tokens == 0 and len(top.scheduler.running) == 0


def test_an_aborted_request_is_gone_within_one_turn():
    top = BenchTop()
    top.add(1, prompt_of(1, 50), 400)
    top.turn()
    top.abort(1)
    top.turn()
    assert top.finish[1].kind is FinishKind.ABORT and top.scheduler.idle
    assert top.reporter.state()["leased_tokens"] == 0 == top.reporter.state()["owned_tokens"]


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_a_state_in_which_nothing_runs_shows_nothing_taken(overlap: str):
    """Although the step that computed the aborted request is in flight when the state is asked for."""
    top = BenchTop(overlap=overlap)
    top.add(1, prompt_of(1, 50), 0)
    top.run()
    top.add(2, prompt_of(1, 50), 400)
    top.turn()
    assert top.reporter.state()["leased_tokens"] > 0
    top.abort(2)
    top.control(GetState)
    top.turn()
    state = json.loads(top.replies[-1].body)
    assert state["running_requests"] == state["leased_tokens"] == state["owned_tokens"] == 0


def test_a_waiting_request_can_be_aborted():
    top = BenchTop(rows=1)
    top.add(1, prompt_of(1, 5), 50)
    top.add(2, prompt_of(2, 5), 50)
    top.turn()
    top.abort(2)
    top.turn()
    assert top.finish[2].kind is FinishKind.ABORT and 1 not in top.finish


def test_no_step_computes_more_prompt_than_the_chunk():
    top = BenchTop(chunked_prefill_size=50)
    for uid in range(1, 9):
        top.add(uid, prompt_of(uid, 120), 3)
    top.run()
    assert top.runner.largest_step <= 50 + 8


def test_prefill_only_ends_with_length_zero_and_no_token():
    top = BenchTop()
    top.add(1, prompt_of(1, 30), 0)
    top.run()
    assert top.tokens[1] == [] and (top.finish[1].kind, top.finish[1].length) == (FinishKind.LENGTH, 0)


def test_stop_token_ids_end_a_request_also_when_eos_is_ignored():
    top = BenchTop()
    prompt = prompt_of(1, 10)
    output = expected_output(prompt, 30)
    stop = output[7]
    first = output.index(stop)
    top.add(1, prompt, 30, stop_token_ids=(stop,), ignore_eos=True)
    top.run()
    assert top.tokens[1] == output[: first + 1] and top.finish[1].matched == stop


def test_lpm_serves_the_longest_cached_prefix_first():
    top = BenchTop(rows=1, schedule_policy="lpm")
    long, short = prompt_of(1, 80), prompt_of(2, 40)
    for uid, prompt in ((1, long), (2, short)):
        top.add(uid, prompt, 1)
    top.run()
    top.add(10, prompt_of(9, 50), 1)
    top.add(11, short + prompt_of(8, 5), 1)
    top.add(12, long + prompt_of(7, 5), 1)
    top.run()
    assert top.finish_order[2:] == [12, 11, 10]


def test_lpm_lets_nobody_starve():
    top = BenchTop(rows=1, schedule_policy="lpm", max_wait_s=5.0)
    hot = prompt_of(1, 80)
    top.add(1, hot, 1)
    top.run()
    top.add(2, prompt_of(2, 40), 1)
    for uid in range(10, 30):
        top.add(uid, [*hot, uid], 3)
    top.scheduler.receive(block=False)
    for _ in range(9):
        top.turn()
    assert 2 not in top.finish
    top.clock.advance(5.1)
    for uid in range(30, 40):
        top.add(uid, [*hot, uid], 3)
    top.run()
    assert top.finish_order.index(2) <= 6


def test_fcfs_serves_in_order_of_arrival():
    top = BenchTop(rows=1, schedule_policy="fcfs")
    for uid in (5, 3, 9, 1):
        top.clock.advance(1)
        top.add(uid, prompt_of(uid, 20), 2)
    top.run()
    assert top.finish_order == [5, 3, 9, 1]


def test_lof_serves_the_longest_output_first():
    top = BenchTop(rows=1, schedule_policy="lof")
    for uid, new in ((1, 3), (2, 9), (3, 6)):
        top.add(uid, prompt_of(uid, 20), new)
    top.run()
    assert top.finish_order == [2, 3, 1]


def test_random_is_a_reproducible_order_that_differs_from_arrival():
    def order() -> list[int]:
        top = BenchTop(rows=1, schedule_policy="random")
        for uid in range(1, 20):
            top.add(uid, prompt_of(uid, 20), 1)
        top.run()
        return top.finish_order

    assert order() == order() != list(range(1, 20))


def test_dfs_weight_takes_the_heaviest_subtree_before_the_next():
    top = BenchTop(rows=3, schedule_policy="dfs-weight")
    light, heavy = prompt_of(1, 40), prompt_of(2, 40)
    top.add(1, light, 1)
    top.add(2, heavy, 1)
    top.run()
    for uid in (10, 11):
        top.add(uid, [*light, uid], 1)
    for uid in (20, 21, 22):
        top.add(uid, [*heavy, uid], 1)
    top.run()
    assert top.finish_order[2:] == [20, 21, 22, 10, 11]


def test_a_waiting_request_can_say_why():
    top = BenchTop(rows=1)
    top.add(1, prompt_of(1, 5), 50)
    top.add(2, prompt_of(2, 5), 50)
    top.turn()
    assert top.scheduler.where(1)["state"] == "running"
    assert "--max-running-requests" in top.scheduler.where(2)["reason"]
    top.add(4, prompt_of(4, 5), 50)  # arrives while the row is taken
    top.turn()
    assert "--max-running-requests" in top.scheduler.where(4)["reason"]
    assert top.scheduler.where(3) is None


def test_a_request_that_shares_waits_for_the_one_that_computes():
    top = BenchTop(chunked_prefill_size=120)
    shared = prompt_of(1, 100)
    top.add(1, [*shared, 1], 5)
    top.add(2, [*shared, 2], 5)
    top.turn()
    assert "prefix that another request is computing" in top.scheduler.where(2)["reason"]


def test_memory_refusals_name_the_shortage():
    top = BenchTop(total=100, context=100)
    top.add(1, prompt_of(1, 60), 30)
    top.add(2, prompt_of(2, 60), 30)
    top.turn()
    top.add(3, prompt_of(3, 60), 30)
    top.turn()
    assert "needs" in top.scheduler.where(2)["reason"] and "tokens of memory" in top.scheduler.where(2)["reason"]
    assert "is behind a request that needs" in top.scheduler.where(3)["reason"]
    top.run()
    assert top.tokens[2] == expected_output(prompt_of(2, 60), 30)


def test_a_request_that_can_never_fit_ends_with_an_error():
    top = BenchTop(total=64, context=64)
    top.add(1, prompt_of(1, 60), 30)
    top.run()
    assert (
        top.finish[1].kind is FinishKind.ABORT
        and top.finish[1].error.status == 400
        and "64" in str(top.finish[1].error)
    )


def test_flush_waits_until_idle_and_forgets():
    top = BenchTop()
    top.add(1, prompt_of(1, 50), 5)
    top.turn()
    top.control(FlushCache, timeout_s=60.0)
    top.turn()
    assert not top.replies
    top.run()
    assert top.replies[0].ok
    assert top.scheduler.cache.free_tokens == top.scheduler.cache.total_tokens


def test_flush_without_patience_fails_while_busy():
    top = BenchTop()
    top.add(1, prompt_of(1, 50), 5)
    top.turn()
    top.control(FlushCache)
    top.turn()
    assert not top.replies[0].ok and b"running" in top.replies[0].body


def test_a_row_that_is_not_finite_ends_that_request_alone_and_is_not_cached():
    top = BenchTop(rows=4)
    bad, good = prompt_of(1, 40), prompt_of(2, 40)
    top.add(1, bad, 5)
    top.add(2, good, 5)
    top.runner.break_rows = {1}
    top.run()
    top.runner.break_rows = set()
    assert top.finish[1].error.status == 500 and top.tokens[2] == expected_output(good, 5)
    top.add(3, bad, 5)
    top.run()
    assert top.opened[3].cached_tokens == 0 and top.tokens[3] == expected_output(bad, 5)


def test_namespaces_share_no_prefix():
    top = BenchTop()
    prompt = prompt_of(1, 50)
    top.add(1, prompt, 2, namespace=("a",))
    top.run()
    top.add(2, prompt, 2, namespace=("b",))
    top.add(3, prompt, 2, namespace=("a",))
    top.run()
    assert (top.opened[2].cached_tokens, top.opened[3].cached_tokens) == (0, 49)


def test_a_long_queue_is_not_looked_up_whole_at_every_step(monkeypatch: pytest.MonkeyPatch):
    top = BenchTop(rows=2, deep_checks=False)
    for uid in range(1, 2001):
        top.add(uid, prompt_of(uid, 3), 1)
    looked_up = 0
    peek = top.scheduler.cache.peek

    def counting(tokens, namespace):
        nonlocal looked_up
        looked_up += 1
        return peek(tokens, namespace)

    monkeypatch.setattr(top.scheduler.cache, "peek", counting)
    top.turn()
    assert 0 < looked_up <= 512


def test_a_retracted_request_waits_at_its_first_arrival():
    top = BenchTop(total=160, context=160, rows=8, schedule_conservativeness=0.01, schedule_policy="fcfs")
    for uid in range(1, 9):
        top.clock.advance(1)
        top.add(uid, prompt_of(uid, 10), 60)
    while not top.scheduler.running.num_retractions:
        top.turn()
    waiting = list(top.scheduler.waiting)
    assert [r.uid for r in waiting] == sorted(r.uid for r in waiting)


def test_nobody_waits_for_a_prefix_that_will_not_be_kept():
    top = BenchTop(disable_radix_cache=True)
    shared = prompt_of(1, 100)
    top.add(1, [*shared, 1], 1)
    top.add(2, [*shared, 2], 1)
    top.turn()
    assert top.runner.steps == 1 and set(top.finish) == {1, 2}


def test_a_lost_slot_is_noticed_when_idle():
    top = BenchTop(deep_checks=False, check_invariants=False)
    top.add(1, prompt_of(1, 20), 2)
    top.run()
    assert top.scheduler.cache.allocate(3) is not None  # nobody's
    top.add(2, prompt_of(2, 20), 2)
    with pytest.raises(AssertionError, match="not conserved"):
        top.run()
