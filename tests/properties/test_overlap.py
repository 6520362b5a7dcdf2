"""Planning a step while the one before runs changes nothing that a client sees.

Random schedules (arrivals, aborts, shortages, stop texts and patterns, penalties, log-probabilities, hidden states,
seeds, samples, leases of clients) run twice: step after step, and overlapped on a device that computes as late as it
can.
"""

from functools import partial

import pytest
from bench_top import BenchTop
from delayed_runner import DelayedRunner, fingerprint
from schedules import TOKENIZER, Schedule, make_schedule, play, run, what_clients_see

from ramet.ipc.messages import FinishKind
from ramet.ipc.spec import HiddenMode, LogprobSpec
from ramet.runtime.scheduler.step import Step


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
    state = overlapped.reporter.state()
    assert state["leased_tokens"] == state["owned_tokens"] == state["penalty_slots"] == 0
    for top in (plain, overlapped):
        top.clock.advance(100)
        top.turn()
        assert top.scheduler.cache.tree.locked_tokens == len(top.features.leases.leases) == 0, seed
    assert plain.scheduler.results.discarded_tokens == 0
    stopped = sum(finish.kind is not FinishKind.LENGTH for finish in overlapped.finish.values())
    assert overlapped.scheduler.results.discarded_tokens <= stopped, seed
    counted = sum(map(len, overlapped.tokens.values()))
    assert state["generated_tokens"] == counted, seed


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_overlapped_is_plain_token_for_token_and_field_for_field(first: int):
    for seed in range(first, first + 20):
        check(seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_overlapped_is_plain_for_long(first: int):
    for seed in range(first, first + 100):
        check(seed)


def planned(schedule: Schedule, overlap: str, *, kept: bool) -> list[str]:
    """Every step of a schedule."""
    top = BenchTop(tokenizer=TOKENIZER, overlap=overlap, **schedule.options)
    if not kept:
        batches = top.scheduler.planner._batches
        batches.plan_decode = partial(batches.plan, prefills={})  # type: ignore[method-assign]
    plan, prints = top.scheduler.planner.plan, list[str]()

    def recorded() -> Step | None:
        step = plan()
        if step is not None:
            prints.append(fingerprint(step))
        return step

    top.scheduler.planner.plan = recorded  # type: ignore[method-assign]
    run(schedule, top)
    return prints


@pytest.mark.parametrize("overlap", ["on", "off"])
def test_what_a_step_keeps_from_the_one_before_is_what_would_be_planned_anew(overlap: str):
    for seed in range(25):
        schedule = make_schedule(seed)
        assert planned(schedule, overlap, kept=True) == planned(schedule, overlap, kept=False), seed


def test_the_schedules_reach_what_they_are_for():
    """Steps really overlap, memory really runs out, texts really stop, tokens really are discarded."""
    retractions = discarded = stops = leases = revoked = 0
    for seed in range(60):
        top = play(make_schedule(seed), "on")
        assert isinstance(top.runner, DelayedRunner) and top.runner.most_in_flight <= 2
        retractions += top.scheduler.running.num_retractions
        discarded += top.scheduler.results.discarded_tokens
        leases += len(top.features.leases.leases)
        revoked += top.features.leases.num_revoked
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
    assert top.scheduler.results.discarded_tokens == 0
    assert top.runner.computed_tokens == sum(10 + uid - 1 for uid in range(1, 9))
