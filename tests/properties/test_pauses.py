"""Random interleavings of arrivals, aborts, pauses in three modes, flushes and turns: every output is as without them.

The model is `expected_output`: a function of the prompt. What a pause loses, shares or computes twice in another way
shows as a wrong token, a request that never ends, or a slot that is not given back (BenchTop looks after every turn).
"""

import random
from typing import Any

import pytest
from bench_top import BenchTop
from hash_runner import expected_output
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, sampled
from schedules import TOKENIZER, make_schedule, play, run, what_clients_see
from test_constrained_schedules import GRAMMARS, constrained, nothing_is_lost
from test_constrained_schedules import play as play_constrained

from ramet.ipc.control import ContinueGeneration, FlushCache, PauseGeneration
from ramet.ipc.messages import FinishKind

MAX_RETRACTS = 100
NUMBER = st.integers(0, 1000)
ACTION = st.one_of(
    st.tuples(st.just("turn"), NUMBER),
    st.tuples(st.just("turn"), NUMBER),
    st.tuples(st.just("add"), NUMBER),
    st.tuples(st.just("add"), NUMBER),
    st.tuples(st.just("abort"), NUMBER),
    st.tuples(st.sampled_from(["in_place", "retract", "abort all"]), NUMBER),
    st.tuples(st.just("continue"), NUMBER),
    st.tuples(st.just("flush"), NUMBER),
)
SCENARIO = {
    "actions": st.lists(ACTION, min_size=5, max_size=60),
    "page_size": st.sampled_from([1, 16]),
    "overlap": st.sampled_from(["off", "on"]),
    "total": st.sampled_from([192, 1024]),
    "cache": st.sampled_from(["tree", "list", "off"]),
}


class Table:
    """A scheduler, and what was asked of it."""

    def __init__(self, page_size: int, overlap: str, total: int, cache: str) -> None:
        self.top = BenchTop(
            total=total, rows=4, context=128, page_size=page_size, chunked_prefill_size=16, overlap=overlap,
            schedule_conservativeness=0.01, disable_radix_cache=cache == "off",
            prefix_cache="list" if cache == "list" else "tree",
        )  # fmt: skip
        self.asked: dict[int, tuple[list[int], int]] = {}  # uid -> prompt, new tokens
        self.paused = False

    def add(self, number: int) -> None:
        uid = len(self.asked) + 1
        prompt = [(number % 3 * 7 + i) % 97 for i in range(number % 40)] + [uid % 97, number % 97]
        self.asked[uid] = prompt, number % 30
        lease = {"prefix_lease_s": 50} if number % 5 == 0 else {}
        self.top.add(uid, prompt, number % 30, **lease)

    def act(self, name: str, number: int) -> None:
        open_uids = [uid for uid in self.asked if uid not in self.top.finish]
        match name:
            case "add":
                self.add(number)
            case "abort" if open_uids:
                self.top.abort(open_uids[number % len(open_uids)])
            case "in_place" | "retract" | "abort all":
                self.top.control(PauseGeneration, retract=name == "retract")
                self.paused = True
                if name == "abort all":
                    self.top.abort(*open_uids)
            case "continue":
                self.top.control(ContinueGeneration)
                self.paused = False
            case "flush":
                self.top.control(FlushCache, timeout_s=number / 100)
        self.top.turn()
        self.top.clock.advance(0.1)


@examples(60, 4000)
@given(**SCENARIO)
def test_pauses_lose_no_request_and_no_slot_and_change_no_output(actions: list[tuple[str, int]], **how: Any) -> None:
    table = Table(**how)
    top = table.top
    for name, number in actions:
        steps, was_paused = top.runner.steps, table.paused
        table.act(name, number)
        assert not (was_paused and table.paused) or top.runner.steps == steps, (
            f"a step of a paused scheduler, after {name}"
        )
    table.act("continue", 0)
    top.run()
    assert set(top.finish) == set(table.asked)
    for uid, (prompt, num_new) in table.asked.items():
        whole = expected_output(prompt, num_new)
        ended_early = top.finish[uid].kind is FinishKind.ABORT
        assert top.tokens[uid] == (whole[: len(top.tokens[uid])] if ended_early else whole), uid
    top.control(FlushCache)
    top.turn()
    assert top.reporter.state()["free_tokens"] == how["total"] - how["total"] % how["page_size"]
    num_control = sum(name in ("in_place", "retract", "abort all", "continue", "flush") for name, _ in actions)
    assert len(top.replies) == num_control + 2


class PausingTop(BenchTop):
    """Pauses at first and now and then, in one mode or the other, and goes on some turns later.

    It retracts MAX_RETRACTS times at most: without a cache, a prompt that is computed token by token would never end.
    """

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(**options)
        self._draw = random.Random(seed)
        self.num_pauses = self._num_retracts = 0

    def turn(self) -> None:
        if self._draw.random() < 0.2 or not self.num_pauses:
            retracts = self._draw.random() < 0.5 and self._num_retracts < MAX_RETRACTS
            self.num_pauses += 1
            self._num_retracts += retracts
            self.control(PauseGeneration, retract=retracts)
        elif self._draw.random() < 0.5:
            self.control(ContinueGeneration)
        super().turn()


def is_the_same(plain: BenchTop, paused: BenchTop, seed: int) -> None:
    assert plain.finish.keys() == paused.finish.keys()
    for uid in plain.finish:
        if FinishKind.ABORT in (plain.finish[uid].kind, paused.finish[uid].kind):  # it comes when it comes
            shorter = min(len(plain.tokens[uid]), len(paused.tokens[uid]))
            assert plain.tokens[uid][:shorter] == paused.tokens[uid][:shorter], (seed, uid)
        else:
            assert what_clients_see(plain, uid) == what_clients_see(paused, uid), (seed, uid)
    nothing_is_lost(paused, seed)


@pytest.mark.parametrize("overlap", ["off", "on"])
@pytest.mark.parametrize("seed", sampled(range(200), 8))
def test_a_paused_schedule_is_seen_as_one_without_pauses(seed: int, overlap: str) -> None:
    """With stop texts, penalties, log-probabilities, hidden states, seeds, samples and leases of clients."""
    schedule = make_schedule(seed)
    paused = run(schedule, PausingTop(seed, tokenizer=TOKENIZER, overlap=overlap, **schedule.options))
    assert paused.num_pauses
    is_the_same(play(schedule, "off"), paused, seed)


@pytest.mark.parametrize("overlap", ["off", "on"])
@pytest.mark.parametrize("seed", sampled(range(100), 4))
def test_a_paused_schedule_with_constraints_is_seen_as_one_without_pauses(seed: int, overlap: str) -> None:
    schedule, _ = constrained(seed)
    how: dict[str, Any] = {"overlap": overlap, "jump_forward": "ff"}
    top = PausingTop(seed, tokenizer=TOKENIZER, grammars=GRAMMARS, **schedule.options, **how)
    paused = run(schedule, top)
    is_the_same(play_constrained(schedule, jump_forward="off", overlap="off"), paused, seed)
