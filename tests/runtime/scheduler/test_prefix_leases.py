"""Leases of clients: begun when a prompt is computed, renewed, ended by time, by clients, by a flush or by need."""

from typing import Any

import numpy as np
import pytest
from bench_top import BenchTop
from hash_runner import VOCABULARY, expected_output

from ramet.ipc.control import FlushCache, GetState
from ramet.ipc.messages import FinishKind, Stats
from ramet.ipc.spec import HiddenMode, LogprobSpec
from ramet.runtime.scheduler.features import lease_ledger

PROMPT = np.random.default_rng(1).integers(0, VOCABULARY, 40).tolist()
OTHER = np.random.default_rng(2).integers(0, VOCABULARY, 40).tolist()


def bench(**options: Any) -> BenchTop:
    return BenchTop(**{"total": 256, "context": 200, "rows": 8, **options})


def ask(top: BenchTop, uid: int, prompt: list[int] = PROMPT, num_new: int = 0, **more: Any) -> None:
    """A request, to its end."""
    top.add(uid, prompt, num_new, **more)
    top.run()


def state(top: BenchTop) -> dict[str, Any]:
    """As a client sees it, which wakes the scheduler."""
    top.control(GetState)
    top.turn()
    return top.reporter.state()


def held(top: BenchTop) -> tuple[int, int]:
    seen = state(top)
    return seen["prefix_leases"], seen["prefix_lease_tokens"]


def cached(top: BenchTop, prompt: list[int] = PROMPT, namespace: tuple[str, ...] = ()) -> int:
    """Tokens of a prompt that would be found, its last one included."""
    return top.scheduler.cache.peek(np.array([*prompt, 0], dtype=np.int32), namespace)


def crowd_out(top: BenchTop, uid: int) -> None:
    """Requests that need all memory there is, but not what clients hold."""
    for i in range(uid, uid + 4):
        ask(top, i, np.random.default_rng(i).integers(0, VOCABULARY, 90).tolist(), 30)


# -- its life -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_a_request_without_output_pins_its_prompt(overlap: str):
    top = bench(overlap=overlap)
    ask(top, 1, prefix_lease_s=60)
    crowd_out(top, 10)
    assert cached(top) == 40 and held(top) == (1, 40)


def test_a_prompt_without_a_lease_is_crowded_out():
    top = bench()
    ask(top, 1)
    crowd_out(top, 10)
    assert cached(top) == 0 and held(top) == (0, 0)


def test_to_give_a_lease_back_computes_nothing():
    top = bench()
    ask(top, 1, prefix_lease_s=60)
    steps = top.reporter.state()["steps"]
    ask(top, 2, prefix_lease_s=0)
    assert held(top) == (0, 0) and top.reporter.state()["steps"] == steps
    assert top.finish[2].kind is FinishKind.LENGTH and top.opened[2].cached_tokens == 0


@pytest.mark.parametrize("more", [{"num_new": 3}, {"logprobs": LogprobSpec(0)}, {"hidden": HiddenMode.LAST}])
def test_a_request_that_wants_more_than_that_is_computed(more: dict[str, Any]):
    top = bench()
    ask(top, 1, prefix_lease_s=60)
    ask(top, 2, prefix_lease_s=0, **more)
    assert held(top) == (0, 0) and len(top.tokens[2]) == more.get("num_new", 0)
    assert (2 in top.scores) == ("logprobs" in more) and (2 in top.hidden) == ("hidden" in more)


def test_only_whole_pages_are_held():
    top = bench(page_size=16)
    ask(top, 1, prefix_lease_s=60)
    assert held(top) == (1, 32)
    ask(top, 2, PROMPT[:15], prefix_lease_s=60)  # less than a page: there is nothing to hold
    assert held(top) == (1, 32) and top.finish[2].kind is FinishKind.LENGTH


def test_it_begins_when_the_prompt_is_computed_and_ends_after_its_time():
    top = bench(chunked_prefill_size=10)
    top.add(1, PROMPT, 30, prefix_lease_s=5)
    for _ in range(3):
        top.turn()
        top.clock.advance(10)
    assert held(top)[0] == 1  # the fourth chunk was computed with this turn
    top.clock.advance(4.9)
    assert held(top) == (1, 40) and top.reporter.state()["next_prefix_lease_end_s"] == pytest.approx(0.1)
    top.clock.advance(0.1)
    assert held(top) == (0, 0) and top.reporter.state()["next_prefix_lease_end_s"] is None
    top.run()
    assert top.tokens[1] == expected_output(PROMPT, 30)


def test_the_later_deadline_counts():
    top = bench()
    ask(top, 1, prefix_lease_s=10)
    top.clock.advance(5)
    ask(top, 2, prefix_lease_s=10)
    ask(top, 3, prefix_lease_s=1)
    top.clock.advance(9)
    assert held(top) == (1, 40)
    top.clock.advance(1)
    assert held(top) == (0, 0)


def test_samples_of_a_prompt_share_one_lease():
    top = bench()
    top.add(1, PROMPT, 5, n=3, prefix_lease_s=10)
    top.run()
    assert held(top) == (1, 40)


def test_what_two_prompts_share_counts_once():
    top = bench()
    ask(top, 1, PROMPT[:20], prefix_lease_s=10)
    ask(top, 2, PROMPT, prefix_lease_s=20)
    assert held(top) == (2, 40)
    top.clock.advance(10)
    assert held(top) == (1, 40)


def test_namespaces_hold_prefixes_of_their_own():
    top = bench()
    for uid, namespace in enumerate([(), ("a",), ("b",)], start=1):
        ask(top, uid, PROMPT, prefix_lease_s=10, namespace=namespace)
    assert held(top) == (3, 120)
    ask(top, 4, prefix_lease_s=0, namespace=("a",))
    assert held(top) == (2, 80)
    assert cached(top, namespace=("b",)) == 40


def test_no_other_owner_ends_a_lease_though_both_share_what_is_cached():
    top = bench()
    ask(top, 1, prefix_lease_s=60, key_name="a")
    ask(top, 2, prefix_lease_s=60, key_name="b")
    assert top.opened[2].cached_tokens > 0 and held(top) == (2, 40)
    ask(top, 3, prefix_lease_s=0, key_name="b")
    assert held(top) == (1, 40)
    ask(top, 4, prefix_lease_s=0)
    assert held(top) == (1, 40)
    ask(top, 5, prefix_lease_s=0, key_name="a")
    assert held(top) == (0, 0)


def test_one_key_holds_its_share_of_what_clients_may_hold(monkeypatch: pytest.MonkeyPatch):
    top = bench()
    monkeypatch.setattr(top.features.leases.ledger, "_share", 0.5)  # 64 of 128 tokens
    ask(top, 1, prefix_lease_s=60, key_name="a")
    ask(top, 2, OTHER, prefix_lease_s=60, key_name="a")
    status, message = refusal(top, 2)
    assert status == 429 and "this key holds 40 of the 64 that one key may (--max-share-per-key)" in message
    ask(top, 3, OTHER, prefix_lease_s=60, key_name="b")
    assert held(top) == (2, 80)


def test_zero_seconds_end_the_lease_on_the_same_prompt_alone():
    top = bench()
    ask(top, 1, PROMPT[:20], prefix_lease_s=10)
    ask(top, 2, PROMPT, prefix_lease_s=10)
    ask(top, 3, PROMPT[:30], prefix_lease_s=0)
    assert held(top) == (2, 40)
    ask(top, 4, PROMPT, prefix_lease_s=0)
    assert held(top) == (1, 20)
    ask(top, 5, OTHER, prefix_lease_s=0)
    assert held(top) == (1, 20)


def test_zero_seconds_end_a_lease_that_was_asked_for_before_and_has_not_begun():
    top = bench(chunked_prefill_size=10)
    top.add(1, PROMPT, 5, prefix_lease_s=10)
    top.turn()
    top.add(2, PROMPT, 5, prefix_lease_s=0)
    top.run()
    assert held(top) == (0, 0)
    ask(top, 3, prefix_lease_s=10)
    assert held(top) == (1, 40)


def test_zero_seconds_end_a_lease_whose_request_runs_on():
    top = bench()
    top.add(1, PROMPT, 50, prefix_lease_s=10)
    top.turn()
    top.turn()
    assert held(top) == (1, 40)
    top.add(2, PROMPT, 0, prefix_lease_s=0)
    top.turn()
    assert held(top) == (0, 0) and top.scheduler.running.get(1) is not None
    top.run()
    assert held(top) == (0, 0) and top.tokens[1] == expected_output(PROMPT, 50)


@pytest.mark.parametrize("turns", [0, 2, 20])
def test_an_abort_ends_the_lease_of_its_request(turns: int):
    top = bench(chunked_prefill_size=10)
    top.add(1, PROMPT, 50, prefix_lease_s=100)
    for _ in range(turns):
        top.turn()
    top.abort(1)
    top.run()
    assert held(top) == (0, 0) and not top.features.leases.open


def test_an_abort_leaves_what_another_request_asked_for():
    top = bench()
    ask(top, 1, prefix_lease_s=10)
    top.add(2, PROMPT, 50, prefix_lease_s=100)
    top.turn()
    top.turn()
    top.clock.advance(9)
    assert held(top) == (1, 40)
    top.abort(2)
    assert held(top) == (1, 40)
    top.clock.advance(1)
    assert held(top) == (0, 0)


def test_an_abort_ends_a_lease_that_only_its_request_still_asked_for():
    top = bench()
    ask(top, 1, prefix_lease_s=10)
    top.add(2, PROMPT, 50, prefix_lease_s=100)
    top.turn()
    top.clock.advance(50)
    assert held(top) == (1, 40)
    top.abort(2)
    top.run()
    assert held(top) == (0, 0)


def test_a_prompt_that_failed_is_not_held():
    top = bench()
    top.add(1, PROMPT, 5, prefix_lease_s=10)
    top.runner.break_rows = set(range(9))
    top.run()
    assert top.finish[1].error.status == 500 and held(top) == (0, 0)


def test_a_flush_ends_every_lease():
    top = bench()
    ask(top, 1, prefix_lease_s=10)
    top.control(FlushCache)
    top.turn()
    assert top.replies[-1].ok and held(top) == (0, 0)
    assert top.scheduler.cache.free_tokens == 256


# -- bounds ---------------------------------------------------------------------------------------------------------


def refusal(top: BenchTop, uid: int) -> tuple[int, str]:
    assert top.tokens[uid] == []
    return top.finish[uid].error.status, str(top.finish[uid].error)


def test_a_time_beyond_the_longest_is_refused_before_anything_is_computed():
    top = bench(max_prefix_lease_s=30)
    ask(top, 1, prefix_lease_s=30.5)
    status, message = refusal(top, 1)
    assert status == 400 and message.startswith("prefix_lease_s is 30.5, must be in [0, 30]")
    assert "--max-prefix-lease-s" in message and top.runner.computed_tokens == 0
    assert top.finish[1].error.place == "prefix_lease_s"
    ask(top, 2, prefix_lease_s=30)
    assert held(top) == (1, 40)


def test_without_a_cache_there_is_nothing_to_hold():
    top = bench(disable_radix_cache=True)
    ask(top, 1, prefix_lease_s=1)
    assert refusal(top, 1)[0] == 400 and "--disable-radix-cache" in refusal(top, 1)[1]
    ask(top, 2, num_new=3, prefix_lease_s=0)
    assert top.tokens[2] == expected_output(PROMPT, 3)


def test_a_list_of_prefixes_cannot_be_held():
    top = bench(prefix_cache="list")
    ask(top, 1, prefix_lease_s=1)
    assert refusal(top, 1)[0] == 400 and "--prefix-cache list" in refusal(top, 1)[1]


def test_clients_hold_half_of_the_pool_at_most():
    top = bench()
    ask(top, 1, (PROMPT * 4)[:129], prefix_lease_s=9)
    assert refusal(top, 1)[0] == 400 and "128" in refusal(top, 1)[1]
    ask(top, 2, (PROMPT + OTHER)[:80], prefix_lease_s=9)
    ask(top, 3, OTHER + PROMPT[:9], prefix_lease_s=9)
    assert refusal(top, 3)[0] == 503 and "80 of the 128" in refusal(top, 3)[1]
    ask(top, 4, OTHER + PROMPT[:8], prefix_lease_s=9)
    assert held(top) == (2, 128)
    top.clock.advance(9)
    ask(top, 5, OTHER + PROMPT[:9], prefix_lease_s=9)
    assert held(top) == (1, 49)


def test_leases_that_are_granted_together_count_against_each_other():
    top = bench()
    for uid in (1, 2, 3):
        top.add(uid, [uid] * 60, 3, prefix_lease_s=9)
    top.run()
    assert held(top) == (2, 120) and refusal(top, 3)[0] == 503


def test_what_prompts_share_counts_once_before_it_is_computed():
    top = bench()
    shared = (PROMPT + OTHER + PROMPT)[:100]
    for uid in range(1, 9):
        top.add(uid, [*shared, uid], 3, prefix_lease_s=9)
    top.run()
    assert held(top) == (8, 108)


def test_there_are_not_more_leases_than_a_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lease_ledger, "MAX_LEASES", 2)
    top = bench()
    for uid in (1, 2, 3):
        ask(top, uid, [uid] * 5, prefix_lease_s=9)
    assert refusal(top, 3)[0] == 503 and held(top) == (2, 10)
    ask(top, 4, [2] * 5, prefix_lease_s=9)
    assert top.finish[4].kind is FinishKind.LENGTH


# -- memory that is short -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("overlap", ["off", "on"])
def test_a_prompt_that_does_not_fit_beside_leases_ends_the_earliest(page_size: int, overlap: str):
    top = bench(total=192, context=192, page_size=page_size, overlap=overlap)
    ask(top, 1, PROMPT[:32], prefix_lease_s=50)
    ask(top, 2, OTHER[:32], prefix_lease_s=40)
    long = np.random.default_rng(3).integers(0, VOCABULARY, 150).tolist()
    ask(top, 3, long, 9)
    assert top.tokens[3] == expected_output(long, 9)
    assert cached(top, PROMPT[:32]) == 32 and cached(top, OTHER[:32]) < 32
    assert state(top)["revoked_prefix_leases"] == 1 and held(top) == (1, 32)


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_an_output_that_does_not_fit_beside_leases_ends_them_and_is_whole(overlap: str):
    top = bench(total=128, context=128, overlap=overlap)
    ask(top, 1, PROMPT, prefix_lease_s=50)
    ask(top, 2, OTHER[:20], 108)
    assert top.tokens[2] == expected_output(OTHER[:20], 108)
    assert state(top)["revoked_prefix_leases"] == 1 and held(top) == (0, 0)


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_requests_are_retracted_before_a_lease_gives_way(overlap: str):
    top = bench(total=128, context=128, overlap=overlap, schedule_conservativeness=0.01)
    ask(top, 1, PROMPT, prefix_lease_s=500)
    for uid in (2, 3):
        top.add(uid, [uid] * 10, 60)
    top.run()
    assert top.scheduler.running.num_retractions > 0
    assert held(top) == (1, 40) and cached(top) == 40 and state(top)["revoked_prefix_leases"] == 0
    assert all(top.tokens[uid] == expected_output([uid] * 10, 60) for uid in (2, 3))


def test_a_request_waits_for_others_before_a_lease_gives_way():
    top = bench(total=128, context=128)
    ask(top, 1, PROMPT, prefix_lease_s=500)
    top.add(2, OTHER, 20)
    top.turn()
    top.add(3, [3] * 60, 20)
    top.turn()
    assert [each.uid for each in top.scheduler.waiting] == [3]
    top.run()
    assert held(top) == (1, 40)


def test_a_request_that_needs_what_clients_hold_is_not_passed_over_for_ever():
    top = bench(total=128, context=128, max_wait_s=5)
    ask(top, 1, PROMPT, prefix_lease_s=80)
    top.add(2, OTHER + PROMPT, 30)
    for uid in range(3, 200):
        if 2 not in top.finish:
            top.add(uid, [uid % VOCABULARY] * 10, 5)
            top.turn()
            top.clock.advance(0.2)
    assert top.tokens[2] == expected_output(OTHER + PROMPT, 30)
    top.run()


def test_a_request_waits_for_a_step_in_flight_before_a_lease_gives_way():
    top = bench(total=128, context=128, overlap="on")
    ask(top, 1, PROMPT, prefix_lease_s=500)
    top.add(2, OTHER, 40)
    for _ in range(20):
        top.turn()
    top.abort(2)  # a step that reads its memory is in flight
    top.add(3, [3] * 60, 20)
    top.run()
    assert held(top) == (1, 40) and top.tokens[3] == expected_output([3] * 60, 20)


def test_a_lease_that_gives_no_memory_is_left_alone():
    """The one who needs memory reads the prefix himself."""
    top = bench(total=128, context=128)
    ask(top, 1, PROMPT, prefix_lease_s=5)
    ask(top, 2, OTHER[:24], prefix_lease_s=50)
    ask(top, 3, PROMPT, 80)
    assert held(top) == (1, 40) and cached(top) == 40
    assert top.tokens[3] == expected_output(PROMPT, 80)


# -- idleness -------------------------------------------------------------------------------------------------------


class Sleepy:
    """An inbox where nothing arrives any more: whoever waits sleeps as long as he asked for."""

    def __init__(self, top: BenchTop) -> None:
        self._top = top
        self.waits: list[float | None] = []

    def drain(self, block: bool, timeout_s: float | None = None, most: int | None = None) -> list[Any]:
        self.waits.append(timeout_s)
        if block:
            assert timeout_s is not None, "it would sleep for ever"
            self._top.clock.advance(timeout_s)
        return []


def test_an_idle_scheduler_sleeps_until_the_next_lease_ends_and_says_that_memory_is_free():
    top = bench()
    ask(top, 1, PROMPT, prefix_lease_s=0.5)
    ask(top, 2, OTHER, prefix_lease_s=7)
    top.server.drain()
    inbox = top.scheduler._receiver._inbox = Sleepy(top)
    told = []
    for _ in range(2):
        top.scheduler.receive(block=True)
        top.scheduler.turn()
        told += [message.used_tokens for message in top.server.drain() if isinstance(message, Stats)]
    assert inbox.waits == pytest.approx([0.5, 6.5]) and told == [40, 0]
    with pytest.raises(AssertionError, match="for ever"):
        top.scheduler.receive(block=True)
