"""Pauses of the scheduler: what is told of them, what still happens meanwhile, and what ends them."""

import json
from typing import Any

import pytest
from bench_top import BenchTop
from hash_runner import expected_output

from ramet.ipc.control import ContinueGeneration, FlushCache, LocateSequences, PauseGeneration
from ramet.ipc.messages import FinishKind
from ramet.ipc.stats import Stats

PROMPT = [5, 6, 7, 8]


def paused_top(*, retract: bool = False, **options: Any) -> BenchTop:
    """Request 1 has run for a few steps, and generation is paused."""
    top = BenchTop(**options)
    top.add(1, PROMPT, 20)
    for _ in range(5):
        top.turn()
    top.control(PauseGeneration, retract=retract)
    top.turn()
    return top


def where(top: BenchTop, uid: int) -> dict[str, Any]:
    top.control(LocateSequences, uids=[uid])
    top.turn()
    (found,) = json.loads(top.replies[-1].body)["sequences"]
    return found


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_a_paused_request_keeps_what_it_has_and_goes_on(overlap: str) -> None:
    top = paused_top(overlap=overlap)
    computed, known = top.runner.computed_tokens, len(top.tokens[1])
    top.turn()
    assert (top.runner.computed_tokens, len(top.tokens[1])) == (computed, known) and known > 0
    top.control(ContinueGeneration)
    top.run()
    assert top.tokens[1] == expected_output(PROMPT, 20)
    assert top.runner.computed_tokens - computed == 20 - known and top.finish[1].num_retractions == 0


def test_a_retracted_request_is_computed_again_once_the_cache_is_flushed() -> None:
    top = paused_top(retract=True)
    computed, known = top.runner.computed_tokens, len(top.tokens[1])
    top.control(FlushCache)
    top.turn()
    assert top.replies[-1].ok and top.reporter.state()["free_tokens"] == 4096
    top.control(ContinueGeneration)
    top.run()
    assert top.tokens[1] == expected_output(PROMPT, 20) and top.finish[1].num_retractions == 1
    assert top.runner.computed_tokens - computed == len(PROMPT) + 19  # all but the last new token, from the start
    assert known > 0


def test_a_flush_fails_while_a_paused_request_keeps_its_keys() -> None:
    top = paused_top()
    top.control(FlushCache, timeout_s=1.0)
    top.turn()
    num = len(top.replies)
    assert top.scheduler._wait_s == 1.0  # its inbox is asked again when the flush gives up
    top.clock.advance(1.0)
    top.turn()
    assert len(top.replies) == num + 1 and not top.replies[-1].ok


def test_both_that_run_and_that_wait_say_why() -> None:
    top = paused_top()
    top.add(2, PROMPT, 3)
    assert where(top, 1)["state"] == "running" and where(top, 2)["state"] == "waiting"
    assert where(top, 1)["reason"] == where(top, 2)["reason"] == "paused by /pause_generation"
    top.control(ContinueGeneration)
    top.turn()
    assert "reason" not in where(top, 1)


def test_a_pause_of_a_paused_scheduler_may_retract() -> None:
    top = paused_top()
    top.control(PauseGeneration, retract=True)
    top.turn()
    assert where(top, 1)["state"] == "waiting" and where(top, 1)["retractions"] == 1


def test_running_and_waiting_requests_end_when_they_are_aborted() -> None:
    top = paused_top()
    top.add(2, PROMPT, 3)
    top.turn()
    top.abort(1, 2)
    top.turn()
    assert {top.finish[1].kind, top.finish[2].kind} == {FinishKind.ABORT} and top.scheduler.idle


def test_a_client_s_lease_ends_in_time() -> None:
    top = BenchTop()
    top.add(1, PROMPT, 0, prefix_lease_s=10)
    top.run()
    top.control(PauseGeneration)
    top.add(2, [1], 1)
    top.turn()
    assert top.scheduler.waits and top.scheduler._wait_s == 10
    top.clock.advance(10)
    top.turn()
    assert top.reporter.state()["prefix_leases"] == 0


def test_the_stats_say_at_once_that_no_step_is_to_be_expected() -> None:
    top = BenchTop()
    sent: list[Stats] = []

    class Kept:
        def send(self, message: Any) -> None:
            sent.extend([message] if isinstance(message, Stats) else [])

    top.reporter._server = Kept()
    top.add(1, PROMPT, 20)
    top.turn()
    top.add(2, PROMPT, 20)
    top.control(PauseGeneration)
    top.turn()
    assert sent[-1].paused == "paused by /pause_generation" and sent[-1].paused_requests == 2
    top.control(ContinueGeneration)
    top.turn()
    assert (sent[-1].paused, sent[-1].paused_requests) == ("", 0)


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_a_paused_loop_blocks_and_says_that_it_is_idle(overlap: str) -> None:
    """Or it would burn a core, and the watchdog would end the process."""
    top = paused_top(overlap=overlap)
    assert not top.scheduler.idle and top.scheduler.waits


def test_going_on_without_a_pause_changes_nothing() -> None:
    top = BenchTop()
    top.control(ContinueGeneration)
    top.add(1, PROMPT, 3)
    top.run()
    assert top.replies[0].ok and top.tokens[1] == expected_output(PROMPT, 3)
