"""Models whose layers have states, under random schedules: what a client sees is what a model without states gives.

Prefixes, samples, retractions, aborts, evictions of pages and of snapshots, jumps and healed prompts, planned ahead or
not. The device keeps a hash of all tokens that a row's state has seen, and compares it with what the row's slots say.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bench_top import BenchTop
from hash_runner import HashRunner, expected_output
from samples import slow
from schedules import TOKENIZER, Schedule, make_schedule, run, what_clients_see
from state_runner import DelayedStateRunner, StateRunner

from ramet.ipc.messages import FinishKind
from ramet.ipc.spec import FollowUp
from ramet.runtime.cache.stateful import StatefulCache
from ramet.runtime.scheduler.features import states
from ramet.runtime.scheduler.features.follow_ups import KEPT_S
from ramet.runtime.scheduler.process.invariants import check_snapshots

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_constrained_schedules import constrained
from test_healed_schedules import GRAMMARS, healed

NUM_SNAPSHOTS = [6, 1, 0, 40]


@pytest.fixture(autouse=True)
def close_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts are short here, and so are outputs."""
    monkeypatch.setattr(states, "MIN_GAP", 3)
    monkeypatch.setattr(states, "INTERVAL", 8)


class Top(BenchTop):
    def turn(self) -> None:
        super().turn()
        assert isinstance(self.scheduler.cache, StatefulCache)
        check_snapshots(self.scheduler.cache)


def stateful(schedule: Schedule, num_snapshots: int, seen: Counter[str], **options: Any) -> BenchTop:
    """A schedule on a model with states, after which nothing is lost."""
    plain, late = (type("", (kind,), {"num_snapshots": num_snapshots}) for kind in (StateRunner, DelayedStateRunner))
    top = Top(tokenizer=TOKENIZER, runners=(plain, late), **{**schedule.options, "prefix_cache": "tree", **options})
    run(schedule, top)
    top.clock.advance(100)
    top.turn()
    cache = top.scheduler.cache
    assert isinstance(cache, StatefulCache)
    assert cache.num_taken == 0 and cache.num_free + cache.num_kept == num_snapshots
    assert not cache._pins and cache.tree.locked_tokens == 0
    seen["restored"] += top.runner.num_restored
    seen["saved"] += top.runner.num_saved
    seen["evicted"] += cache.evicted_snapshots
    seen["retracted"] += top.scheduler.running.num_retractions
    return top


def check(schedule: Schedule, seed: int, seen: Counter[str], **options: Any) -> None:
    plain = {**schedule.options, "prefix_cache": "tree", **options}
    alone = run(schedule, BenchTop(tokenizer=TOKENIZER, runners=(HashRunner, HashRunner), overlap="off", **plain))
    for overlap in ("off", "on"):
        num = NUM_SNAPSHOTS[seed % len(NUM_SNAPSHOTS)]
        other = stateful(schedule, num, seen, overlap=overlap, **options)
        assert other.finish.keys() == alone.finish.keys()
        for uid in alone.finish:
            if FinishKind.ABORT in (alone.finish[uid].kind, other.finish[uid].kind):
                shorter = min(len(alone.tokens[uid]), len(other.tokens[uid]))
                assert alone.tokens[uid][:shorter] == other.tokens[uid][:shorter], (seed, uid, overlap)
            else:
                assert what_clients_see(alone, uid) == what_clients_see(other, uid), (seed, uid, overlap)


def crowded(schedule: Schedule) -> dict[str, Any]:
    """Options with which rows outgrow the pool."""
    return {"total": 112 if schedule.options["page_size"] == 16 else 80, "rows": 8, "schedule_conservativeness": 0.01}


@pytest.mark.parametrize("first", [0, *map(slow, range(40, 2000, 40))])
def test_every_output_is_that_of_a_model_without_states(first: int) -> None:
    seen = Counter[str]()
    for seed in range(first, first + 40):
        schedule = make_schedule(seed)
        check(schedule, seed, seen, **(crowded(schedule) if seed % 3 == 0 else {}))
    assert all(seen[each] > 0 for each in ("restored", "saved", "evicted", "retracted")), seen


@pytest.mark.parametrize("first", [0, *map(slow, range(12, 600, 12))])
def test_tokens_that_are_taken_back_take_the_state_back(first: int) -> None:
    for seed in range(first, first + 12):
        check(healed(seed), seed, Counter(), grammars=GRAMMARS, jump_forward="off")
        schedule, _ = constrained(seed)
        check(schedule, seed, Counter(), grammars=GRAMMARS, jump_forward="ff")


def top_of(**options: Any) -> BenchTop:
    settled = {"total": 2048, "rows": 8, "context": 300, "runners": (StateRunner, DelayedStateRunner)}
    return BenchTop(**{**settled, **options})


def cached(top: BenchTop, uid: int, prompt: list[int], **more: Any) -> int:
    top.add(uid, prompt, 8, **more)
    top.run()
    assert top.tokens[uid] == expected_output(prompt, 8)
    return top.opened[uid].cached_tokens


def test_what_prompts_share_is_found_by_the_third_of_them() -> None:
    """The first ends elsewhere, the second finds keys there and no state, and leaves one."""
    top, shared = top_of(), list(range(50))
    assert [cached(top, uid, [*shared, *[60 + uid] * 20]) for uid in (1, 2, 3, 4)] == [0, 0, 50, 50]


def test_who_waits_for_a_shared_prefix_has_its_state_saved() -> None:
    top, shared = top_of(chunked_prefill_size=256), list(range(50))
    for uid in range(1, 6):
        top.add(uid, [*shared, *[60 + uid] * 20], 8)
    top.run()
    assert [top.opened[uid].cached_tokens for uid in range(1, 6)] == [0, 50, 50, 50, 50]


@pytest.mark.parametrize(("page", "found"), [(1, 69), (16, 64)])
def test_samples_of_a_prompt_compute_it_once(page: int, found: int) -> None:
    top = top_of(page_size=page)
    top.add(1, list(range(70)), 8, n=4)
    top.run()
    assert [top.opened[uid].cached_tokens for uid in range(1, 5)] == [0, found, found, found]


def test_a_conversation_goes_on_from_the_state_that_its_last_answer_ended_in() -> None:
    top, prompt = top_of(), list(range(40))
    assert cached(top, 1, prompt) == 0
    said = prompt + top.tokens[1]
    assert cached(top, 2, [*said, *range(20)], follow_up=FollowUp("a", 0, "a")) == len(said) - 1
    top.clock.advance(KEPT_S)


def test_a_client_holds_the_snapshot_of_its_prefix() -> None:
    top, held = top_of(), list(range(40))
    cached(top, 1, held, prefix_lease_s=100.0)
    for uid in range(2, 30):
        cached(top, uid, [uid] * 40)
    assert cached(top, 30, [*held, 5]) == 39
    top.clock.advance(101)
    for uid in range(31, 60):
        cached(top, uid, [uid] * 40)
    assert cached(top, 60, [*held, 5]) == 0


def test_contexts_are_refused_by_name() -> None:
    top = top_of()
    top.add(1, list(range(40)), 4, contexts=((10, 10, 10),))
    top.run()
    assert top.finish[1].error.status == 400 and "state" in str(top.finish[1].error)
