"""What a program goes on with is kept until its next request is there, and no longer than it must."""

import json
from typing import Any

import numpy as np
import pytest
from bench_top import BenchTop
from hash_runner import VOCABULARY, expected_output

from ramet.ipc.control import FlushCache, GetState
from ramet.ipc.messages import FinishKind, ProgramsEnded, Stats
from ramet.ipc.spec import FollowUp
from ramet.runtime.scheduler.features.follow_ups import KEPT_S, MAX_EXPECTED, MAX_KINDS, SEEN, START_CALLS
from ramet.runtime.scheduler.features.programs import GROWTH_SHARE

FIRST, SECOND = FollowUp("a", 0), FollowUp("b", 0)


def prompt(seed: int, length: int = 100) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def bench(**options: Any) -> BenchTop:
    return BenchTop(**{"total": 256, "context": 250, "rows": 8, **options})


def ask(top: BenchTop, uid: int, tokens: list[int], num_new: int = 4, **more: Any) -> None:
    """A request, to its end."""
    top.add(uid, tokens, num_new, **more)
    while uid not in top.finish:
        top.turn()
    assert top.finish[uid].kind is FinishKind.LENGTH and top.tokens[uid] == expected_output(tokens, num_new)


def cached(top: BenchTop, tokens: list[int]) -> int:
    return top.scheduler.cache.peek(np.array([*tokens, 0], dtype=np.int32), ())


def go_on(top: BenchTop, uid: int, tokens: list[int]) -> list[int]:
    """The prompt of a program whose request has ended."""
    return [*tokens, *top.tokens[uid], 1, 2, 3]


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_a_new_prompt_waits_for_memory_that_a_program_comes_back_to(overlap: str):
    top = bench(overlap=overlap)
    ask(top, 1, prompt(1), follow_up=FIRST)
    top.add(2, prompt(2, 200), 4)  # more than there is beside it
    for _ in range(3):
        top.scheduler.receive(block=False)
        top.scheduler.turn()
    assert cached(top, prompt(1)) == 100 and not len(top.scheduler.running)
    where = top.scheduler.where(2)
    assert where is not None and "needs 20" in str(where["reason"])
    ask(top, 3, go_on(top, 1, prompt(1)), follow_up=FIRST)
    assert top.opened[3].cached_tokens >= 103 and 2 not in top.opened
    top.inbox.send(ProgramsEnded(["a"]))
    top.turn()
    assert 2 in top.opened
    top.run()
    assert cached(top, prompt(1)) < 100


def test_no_other_owner_ends_a_program_or_takes_what_is_kept_for_it():
    top = bench()
    ask(top, 1, prompt(1), follow_up=FollowUp("a", 0, owner="one"))
    top.inbox.send(ProgramsEnded(["a"], "two"))
    top.inbox.send(ProgramsEnded(["a"]))
    top.turn()
    assert len(top.features.follow_ups.leases) == 1
    top.add(2, prompt(2), 4, follow_up=FollowUp("a", 0, owner="two"))
    top.turn()
    assert len(top.features.follow_ups.leases) == 1
    top.inbox.send(ProgramsEnded(["a"], "one"))
    top.turn()
    assert top.features.follow_ups.leases == []


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_it_waits_for_a_moment_only(overlap: str):
    top = bench(overlap=overlap)
    ask(top, 1, prompt(1), follow_up=FIRST)
    began = top.clock()
    top.add(2, prompt(2, 200), 4)
    top.run()
    assert top.tokens[2] == expected_output(prompt(2, 200), 4)
    assert KEPT_S <= top.clock() - began < 2 * KEPT_S


def test_nobody_waits_where_there_is_memory():
    top = bench(total=1024)
    ask(top, 1, prompt(1), follow_up=FIRST)
    began = top.clock()
    ask(top, 2, prompt(2, 200))
    assert top.clock() == began and len(top.features.follow_ups.leases) == 1


def test_without_the_hint_nothing_is_kept():
    top = bench()
    ask(top, 1, prompt(1))
    ask(top, 2, prompt(2, 200))
    assert cached(top, prompt(1)) < 100


def test_growth_is_counted_before_another_program_begins():
    """Two programs that would not both fit with their next prompts run one after the other."""
    top = bench()
    top.add(1, prompt(1, 80), 4, follow_up=FIRST)
    top.add(2, prompt(2, 80), 4, follow_up=SECOND)
    top.turn()
    assert len(top.scheduler.running) == 1
    together = bench()
    together.add(1, prompt(1, 80), 4)
    together.add(2, prompt(2, 80), 4)
    together.turn()
    assert len(together.scheduler.running) == 2


def test_what_follows_later_keeps_out_new_programs_not_those_that_have_begun():
    top = bench()
    ask(top, 1, prompt(1, 60), follow_up=FIRST)
    top.add(2, prompt(2, 60), 4, follow_up=SECOND)  # would fit, but not with what the first one is going to add
    top.turn()
    assert 2 not in top.opened and len(top.features.follow_ups.leases) == 1
    ask(top, 3, [*go_on(top, 1, prompt(1, 60)), *prompt(3, 60)], follow_up=FIRST)
    assert top.opened[3].cached_tokens >= 63 and 2 not in top.opened
    top.inbox.send(ProgramsEnded(["a"]))
    top.run()
    assert top.tokens[2] == expected_output(prompt(2, 60), 4)


def test_a_request_without_the_hint_does_not_wait_for_what_programs_may_add():
    top = bench()
    top.add(1, prompt(1, 80), 30, follow_up=FIRST)
    top.turn()
    top.add(2, prompt(2, 60), 4, follow_up=SECOND)
    top.add(3, prompt(3, 60), 4)
    top.turn()
    assert [each.uid for each in top.scheduler.running] == [1, 3]
    where = top.scheduler.where(2)
    assert where is not None and "beside what programs may add" in str(where["reason"])


def test_a_program_that_fits_does_not_wait_behind_one_that_does_not():
    top = bench(total=700)
    top.add(1, prompt(1, 100), 4, follow_up=FIRST)
    top.turn()
    top.add(2, prompt(2, 200), 4, follow_up=SECOND)
    top.add(3, prompt(3, 10), 4, follow_up=FollowUp("c", 0))
    top.turn()
    assert [each.uid for each in top.scheduler.running] == [1, 3]


def test_a_kind_that_calls_without_end_keeps_a_share_of_the_pool_at_most():
    top = bench(total=4000)
    for uid in range(101, 401):
        ask(top, uid, [5, 6, 7], 1, follow_up=FIRST)
    top.inbox.send(ProgramsEnded(["a"]))
    top.turn()
    expected = top.features.follow_ups.expected
    assert expected("", 10, 1) == 10 * MAX_EXPECTED == expected("", 10, 9)
    for uid in range(1, 9):
        top.add(uid, prompt(uid, 240), 10, follow_up=FollowUp(str(uid), 0))
    top.turn()
    assert len(top.scheduler.running) == 4000 * (1 - GROWTH_SHARE) // 250


def test_a_new_program_waits_for_those_that_have_begun_no_longer_than_others_wait():
    top = bench(total=1000, max_wait_s=5)
    top.add(1, prompt(1, 100), 100, follow_up=FIRST)
    top.turn()
    top.add(2, prompt(2, 200), 4, follow_up=SECOND)
    top.turn()
    assert top.scheduler.running.get(2) is None
    top.clock.advance(5.1)
    top.turn()
    assert top.scheduler.running.get(2) is not None and top.scheduler.running.get(1) is not None


def converse(top: BenchTop, number: int, num_calls: int, kind: str = "") -> None:
    """A program that calls so many times on one state."""
    tokens, own = prompt(number, 8), FollowUp(str(number), 0, kind)
    for i in range(num_calls):
        uid = 1000 * number + i + 1
        ask(top, uid, tokens, 2, follow_up=own)
        tokens = go_on(top, uid, tokens)
    top.inbox.send(ProgramsEnded([own.program]))
    top.turn()


@pytest.mark.parametrize("num_calls", [1, 2, 5])
def test_how_often_programs_call_is_learnt_from_those_that_have_ended(num_calls: int):
    top = bench(total=1024)
    follow_ups = top.features.follow_ups
    assert follow_ups.expected("", 10, 1) == 20, "two more calls, as long as nothing is known"
    for number in range(1, 101):
        converse(top, number, num_calls)
    assert follow_ups.mean_calls("") == pytest.approx(num_calls, abs=0.05)
    assert follow_ups.expected("", 100, 1) == pytest.approx(100 * (num_calls - 1), abs=5)
    assert follow_ups.expected("", 100, num_calls) <= 5 and follow_ups.expected("", 100, num_calls + 3) == 0


def test_programs_of_one_kind_say_nothing_of_another_one():
    top = bench(total=1024)
    follow_ups = top.features.follow_ups
    for number in range(1, 101):
        converse(top, 2 * number, 1, "asks")
        converse(top, 2 * number + 1, 4, "talks")
    assert [follow_ups.mean_calls(kind) for kind in ("asks", "talks", "new")] == pytest.approx([1, 4, 3], abs=0.05)


def test_the_kinds_that_are_known_are_bounded():
    top = bench(total=1024)
    for number in range(1, MAX_KINDS + 3):
        converse(top, number, 1, f"kind {number}")
    means = [top.features.follow_ups.mean_calls(f"kind {number}") for number in (1, 2, 3, MAX_KINDS + 2)]
    assert means[:2] == [START_CALLS] * 2 and all(mean < START_CALLS for mean in means[2:])


def test_programs_that_come_back_too_late_count_as_such_that_call_once():
    top = bench(total=1024)
    for uid in range(1, 100):
        ask(top, uid, prompt(uid, 8), follow_up=FIRST)
        top.clock.advance(2 * KEPT_S)
        top.turn()
    assert top.features.follow_ups.mean_calls("") == pytest.approx(1, abs=0.05)


def test_a_request_that_runs_goes_before_what_is_kept():
    """Its output grows beyond what was reserved: nothing is retracted while something is only kept."""
    top = bench(schedule_conservativeness=0.01)
    top.add(1, prompt(1), 140)
    for _ in range(2):
        top.turn()
    ask(top, 2, prompt(2, 30), 4, follow_up=SECOND)
    assert len(top.features.follow_ups.leases) == 1
    while 1 not in top.finish:
        top.turn()
    assert top.finish[1].num_retractions == 0 and not top.features.follow_ups.leases


def test_an_ended_program_leaves_nothing_behind():
    top = bench(total=1024)
    for uid, state in ((1, 0), (2, 1), (3, 1)):
        ask(top, uid, prompt(uid, 30), follow_up=FollowUp("a", state))
    ask(top, 4, prompt(4, 30), follow_up=SECOND)
    assert len(top.features.follow_ups.leases) == 3  # of (a, 1) the later one
    top.inbox.send(ProgramsEnded(["a", "nobody"]))
    top.turn()
    assert len(top.features.follow_ups.leases) == 1


def test_a_request_that_is_aborted_keeps_nothing():
    top = bench()
    top.add(1, prompt(1), 50, follow_up=FIRST)
    for _ in range(3):
        top.turn()
    top.abort(1)
    top.run()
    assert not top.features.follow_ups.leases


def test_samples_of_one_prompt_are_all_kept():
    top = bench()
    top.add(1, prompt(1, 30), 4, n=3, follow_up=FIRST)
    top.run()
    assert len(top.features.follow_ups.leases) == 3
    top.add(10, prompt(1, 30), 4, follow_up=FIRST)
    top.turn()
    assert not top.features.follow_ups.leases


def test_a_flush_forgets_it():
    top = bench()
    ask(top, 1, prompt(1), follow_up=FIRST)
    top.control(FlushCache)
    top.turn()
    assert top.scheduler.cache.tree_tokens == 0 and top.replies[-1].ok


@pytest.mark.parametrize("options", [{"disable_radix_cache": True}, {"prefix_cache": "list"}])
def test_caches_that_hold_nothing_ignore_it(options: dict[str, Any]):
    top = bench(**options)
    ask(top, 1, prompt(1), follow_up=FIRST)
    assert not top.features.follow_ups.leases


def test_there_is_a_most(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ramet.runtime.scheduler.features.follow_ups.MAX_KEPT", 40)
    top = bench(total=16384)
    for uid in range(1, 43):
        ask(top, uid, [uid % 90, uid // 90], 1, follow_up=FollowUp(str(uid), 0))
    assert len(top.features.follow_ups.leases) == 40


class Sleepy:
    """An inbox where nothing arrives any more but what it was given: whoever waits sleeps as long as he asked for."""

    def __init__(self, top: BenchTop, *messages: Any) -> None:
        self._top, self._messages = top, list(messages)
        self.waits: list[float | None] = []

    def drain(self, block: bool, timeout_s: float | None = None, most: int | None = None) -> list[Any]:
        if block:
            self.waits.append(timeout_s)
        self._top.clock.advance(0.0 if timeout_s is None else timeout_s)
        messages, self._messages = self._messages[:most], self._messages[len(self._messages[:most]) :]
        return messages


def test_an_idle_scheduler_wakes_once_when_all_that_is_kept_has_ended_and_says_so():
    top = bench(total=1024)
    ask(top, 1, prompt(1), follow_up=FIRST)
    top.clock.advance(0.1)
    ask(top, 2, prompt(2), follow_up=SECOND)
    top.server.drain()
    inbox = top.scheduler._receiver._inbox = Sleepy(top)
    for _ in range(2):
        top.scheduler.receive(block=True)
        top.scheduler.turn()
    assert inbox.waits == [pytest.approx(KEPT_S), None] and not top.features.follow_ups.leases
    stats = [message for message in top.server.drain() if isinstance(message, Stats)]
    assert stats[-1].leased_tokens == stats[-1].used_tokens == 0


def test_what_is_over_is_not_shown_to_who_asks():
    top = bench()
    ask(top, 1, prompt(1), follow_up=FIRST)
    top.control(GetState)
    top.turn()
    top.clock.advance(KEPT_S)
    top.control(GetState)
    top.turn()
    before, after = (json.loads(reply.body)["leased_tokens"] for reply in top.replies)
    assert before >= 100 and after == 0


def test_the_next_request_of_a_program_is_in_time_if_it_came_while_a_step_ran():
    """It arrived before the time was over, and is looked at after that."""
    top = bench()
    ask(top, 1, prompt(1), follow_up=FIRST)
    top.control(GetState)
    top.add(2, go_on(top, 1, prompt(1)), 4, follow_up=FIRST)
    top.clock.advance(2 * KEPT_S)
    top.run()
    ended = ProgramsEnded(["a"])
    top.inbox.send(ended)
    top.turn()
    assert top.features.follow_ups.mean_calls("") == pytest.approx(START_CALLS + (2 - START_CALLS) / SEEN)


def test_what_waits_in_the_queue_is_evicted_last():
    """Of two cached prefixes the one that a waiting request would find stays, although it was used before the other."""
    top = bench(rows=1)
    ask(top, 1, prompt(1, 60))
    ask(top, 2, prompt(2, 60))
    top.add(3, prompt(3, 180), 4, priority=1)  # needs what one of them has
    top.add(4, go_on(top, 1, prompt(1, 60)), 4)
    top.turn()
    assert 3 in top.opened and 4 not in top.opened
    top.run()
    assert top.opened[4].cached_tokens == 63
    assert cached(top, prompt(2, 60)) < 60
