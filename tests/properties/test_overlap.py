"""Planning a step while the one before runs changes nothing that a client sees.

Random schedules (arrivals, aborts, shortages, stop texts and patterns, penalties, log-probabilities, hidden states,
seeds, samples, leases of clients) run twice: step after step, and overlapped on a device that computes as late as it
can.
"""

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
from bench_top import BenchTop
from delayed_runner import DelayedRunner, fingerprint
from hash_runner import VOCABULARY

from ramet.ipc.messages import FinishKind
from ramet.ipc.spec import HiddenMode, LogprobSpec
from ramet.runtime.arrays import Ints
from ramet.runtime.config import BUNDLED_MODEL
from ramet.runtime.long_list import Listed, LongList, parts_of
from ramet.runtime.scheduler.batch import Step, plan_step
from ramet.runtime.scheduler.loop import Scheduler
from ramet.runtime.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.from_folder(BUNDLED_MODEL)


@dataclass(frozen=True)
class Arrival:
    turn: int
    uid: int
    prompt: list[int]
    num_new: int
    asked: dict[str, Any]
    abort_after: int | None


@dataclass(frozen=True)
class Schedule:
    options: dict[str, Any]
    arrivals: list[Arrival]


def make_schedule(seed: int) -> Schedule:
    draw = random.Random(seed)
    page = draw.choice([1, 1, 16])
    options = dict(
        total=draw.choice([64, 80, 1024]) // page * page,
        rows=draw.choice([1, 4, 6, 8]),
        context=112,
        page_size=page,
        chunked_prefill_size=draw.choice([1, 5, 16, 64, -1]),
        schedule_policy=draw.choice(["lpm", "fcfs", "dfs-weight", "random"]),
        schedule_conservativeness=draw.choice([0.01, 1.0]),
        disable_radix_cache=draw.random() < 0.2,
        repetition_penalty_scope=draw.choice(["generated", "all"]),
        eos_ids=draw.sample(range(VOCABULARY), draw.choice([0, 0, 3])),
    )
    arrivals, uid, turn = [], 1, 0
    for _ in range(draw.randint(2, 12)):
        turn += draw.choice([0, 0, 1, 4])
        arrivals.append(_arrival(draw, turn, uid))
        if uid > 1 and draw.random() < 0.3:
            arrivals[-1] = replace(arrivals[-1], prompt=arrivals[-2].prompt)
        uid += arrivals[-1].asked.get("n", 1)
    return Schedule(options, arrivals)


def _arrival(draw: random.Random, turn: int, uid: int) -> Arrival:
    shared = [(draw.randint(0, 2) * 7 + i) % VOCABULARY for i in range(draw.choice([0, 0, 17, 17, 40]))]
    prompt = shared + [draw.randrange(VOCABULARY) for _ in range(draw.randint(1, 12))]
    asked: dict[str, Any] = {}
    if draw.random() < 0.3:
        asked["n"] = draw.randint(2, 3)
    if draw.random() < 0.3:
        asked |= {"temperature": 0.7, "sampling_seed": draw.randrange(100)}
    if draw.random() < 0.25:
        asked["stop"] = tuple(TOKENIZER.decode([draw.randrange(5, VOCABULARY)]) or "x" for _ in range(3))
    if draw.random() < 0.15:
        asked["stop_regex"] = ("[aeiou] ?[b-d]",)
    if draw.random() < 0.25:
        asked["stop_token_ids"] = tuple(draw.sample(range(VOCABULARY), 3))
    if draw.random() < 0.25:
        asked["frequency_penalty"] = 1.0
    if draw.random() < 0.25:
        asked["logprobs"] = LogprobSpec(draw.choice([None, 0, len(prompt) // 2]), draw.randint(0, 2), (5, 9))
    if draw.random() < 0.2:
        asked["hidden"] = draw.choice(list(HiddenMode))
    num_new = draw.choice([0, 1, 2, 9, 30, 30])
    if draw.random() < 0.2:
        asked["min_new_tokens"] = draw.randint(0, num_new)
    if draw.random() < 0.5:
        asked["prefix_lease_s"] = draw.choice([0, 2, 100, 100, 100])
    asked["priority"] = draw.choice([0, 0, 1])
    return Arrival(turn, uid, prompt, num_new, asked, draw.choice([None, None, None, 0, 3, 12]))


def play(schedule: Schedule, overlap: str) -> BenchTop:
    return run(schedule, BenchTop(tokenizer=TOKENIZER, overlap=overlap, **schedule.options))


def run(schedule: Schedule, top: BenchTop) -> BenchTop:
    waiting, turn = list(schedule.arrivals), 0
    while waiting or not top.scheduler.idle:
        while waiting and waiting[0].turn <= turn:
            each = waiting.pop(0)
            top.add(each.uid, each.prompt, each.num_new, **each.asked)
        for each in schedule.arrivals:
            if each.abort_after is not None and turn == each.turn + each.abort_after:
                top.abort(*range(each.uid, each.uid + each.asked.get("n", 1)))
        top.turn()
        top.clock.advance(0.25)
        turn += 1
        assert turn < 20_000, "it never ends"
    return top


def made(entries: Listed) -> list[Any]:
    return LongList(parts_of(entries)).whole()


def what_clients_see(top: BenchTop, uid: int) -> dict[str, Any]:
    """All but when: how much of a prompt was found in the cache, and how often a request was retracted."""
    finish, logprobs, hidden = top.finish[uid], top.scores.get(uid), top.hidden.get(uid)
    return {
        "tokens": top.tokens[uid],
        "finish": (finish.kind, finish.matched, finish.length, finish.cut, finish.message, finish.status),
        "prompt_tokens": top.opened[uid].prompt_tokens,
        "logprobs": logprobs and {name: made(entries) for name, entries in logprobs.meta().items()},
        "hidden": hidden and made(hidden.meta()),
    }


def check(seed: int) -> None:
    schedule = make_schedule(seed)
    plain, overlapped = play(schedule, "off"), play(schedule, "on")
    assert plain.finish.keys() == overlapped.finish.keys()
    aborted = {
        uid for top in (plain, overlapped) for uid, finish in top.finish.items() if finish.kind is FinishKind.ABORT
    }
    for uid in plain.finish:
        if uid in aborted:  # an abort comes when it comes: one of them may have got further
            one, other = plain.tokens[uid], overlapped.tokens[uid]
            shorter = min(len(one), len(other))
            assert one[:shorter] == other[:shorter], (seed, uid)
        else:
            assert what_clients_see(plain, uid) == what_clients_see(overlapped, uid), (seed, uid)
    state = overlapped.scheduler.state()
    assert state["leased_tokens"] == state["owned_tokens"] == state["penalty_slots"] == 0
    for top in (plain, overlapped):
        top.clock.advance(100)
        top.turn()
        assert top.scheduler.cache.tree.locked_tokens == len(top.scheduler.leases.leases) == 0, seed
    assert plain.scheduler._results.discarded_tokens == 0
    stopped = sum(finish.kind is not FinishKind.LENGTH for finish in overlapped.finish.values())
    assert overlapped.scheduler._results.discarded_tokens <= stopped, seed
    counted = sum(map(len, overlapped.tokens.values()))
    assert state["generated_tokens"] == counted, seed


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_overlapped_is_plain_token_for_token_and_field_for_field(first: int):
    for seed in range(first, first + 20):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(200, 1000, 100))
def test_overlapped_is_plain_for_long(first: int):
    for seed in range(first, first + 100):
        check(seed)


class PlainPlanner:
    """Keeps nothing from step to step."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._running, self._eos_ids = scheduler.running, scheduler._stopping.eos_ids

    def plan(self, number: int, decoding: Ints) -> Step:
        return plan_step(number, self._running, decoding, [], self._eos_ids)


def planned(schedule: Schedule, overlap: str, *, kept: bool) -> list[str]:
    """Every step of a schedule."""
    top = BenchTop(tokenizer=TOKENIZER, overlap=overlap, **schedule.options)
    if not kept:
        top.scheduler._decode_planner = PlainPlanner(top.scheduler)  # type: ignore[assignment]
    plan, prints = top.scheduler._plan, list[str]()

    def recorded() -> Step | None:
        step = plan()
        if step is not None:
            prints.append(fingerprint(step))
        return step

    top.scheduler._plan = recorded  # type: ignore[method-assign]
    run(schedule, top)
    return prints


@pytest.mark.parametrize("overlap", ["on", "off"])
def test_what_a_step_keeps_from_the_one_before_is_what_would_be_planned_anew(overlap: str):
    for seed in range(60):
        schedule = make_schedule(seed)
        assert planned(schedule, overlap, kept=True) == planned(schedule, overlap, kept=False), seed


def test_the_schedules_reach_what_they_are_for():
    """Steps really overlap, memory really runs out, texts really stop, tokens really are discarded."""
    retractions = discarded = stops = leases = revoked = 0
    for seed in range(60):
        top = play(make_schedule(seed), "on")
        assert isinstance(top.runner, DelayedRunner) and top.runner.most_in_flight <= 2
        retractions += top.scheduler.running.num_retractions
        discarded += top.scheduler._results.discarded_tokens
        leases += len(top.scheduler.leases.leases)
        revoked += top.scheduler.leases.num_revoked
        stops += sum(isinstance(finish.matched, str) for finish in top.finish.values())
    reached = (retractions, discarded, stops, leases, revoked)
    assert retractions > 5 and discarded > 20 and stops > 5 and leases > 5 and revoked > 0, reached


def test_a_planned_step_is_a_value():
    """Whatever happens after it was planned, a step says the same."""
    top = BenchTop(total=512, rows=4, context=128, overlap="on", chunked_prefill_size=8)
    for uid in range(1, 5):
        top.add(uid, [uid] * 20, 12, frequency_penalty=1.0, logprobs=LogprobSpec(0, 2), hidden=HiddenMode.ALL)
    prints = []
    for turn in range(12):
        top.scheduler.receive(block=False)
        step = top.scheduler.turn()
        prints.append((step, fingerprint(step)))
        if turn == 6:
            top.abort(2)
    top.run()
    assert all(fingerprint(step) == before for step, before in prints)


def test_no_token_is_computed_for_nothing_where_only_lengths_end():
    top = BenchTop(overlap="on")
    for uid in range(1, 9):
        top.add(uid, [uid] * 10, uid)
    top.run()
    assert top.scheduler._results.discarded_tokens == 0
    assert top.runner.computed_tokens == sum(10 + uid - 1 for uid in range(1, 9))
