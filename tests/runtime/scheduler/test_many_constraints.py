"""Thousands of requests with constraints: what one costs that arrives or leaves does not grow with the others."""

from collections.abc import Callable

import pytest
from bench_top import BenchTop
from effort import num_lines
from grammars import Grammars
from schedules import TOKENIZER

from ramet.ipc.messages import Wake
from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.grammar.compiled import Failed
from ramet.runtime.scheduler.features.constraints import MAX_SETTLED

END = 0
PROMPT = [11, 12, 13, 14, 15]
FEW, MANY = 100, 400  # requests
MAX_TIMES = 1.3  # lines for each of MANY requests, over those for each of FEW
REFUSED = Failed("is refused")


def waiting(num: int, patterns: Callable[[int], str]) -> tuple[Grammars, BenchTop]:
    """So many requests wait for their constraints."""
    grammars = Grammars(TOKENIZER, frozenset([END]), held=True)
    top = BenchTop(tokenizer=TOKENIZER, grammars=grammars, eos_ids=[END], deep_checks=False, check_invariants=False)
    for uid in range(1, num + 1):
        top.add(uid, PROMPT, 2, constraint=Constraint(ConstraintKind.REGEX, patterns(uid), place="regex"))
    top.scheduler.receive(block=False)
    return grammars, top


def lines_of_each(act: Callable[[BenchTop, Grammars], None], patterns: Callable[[int], str]) -> list[float]:
    found = []
    for num in (FEW, MANY):
        grammars, top = waiting(num, patterns)
        found.append(num_lines(lambda top=top, grammars=grammars: act(top, grammars)) / num)  # type: ignore[misc]
    return found


@pytest.mark.parametrize("pattern", ["a|b", "a{%d}"], ids=["same", "different"])
def test_a_request_that_no_longer_waits_for_its_constraint_is_found_at_once(pattern: str) -> None:
    def leave(top: BenchTop, _: Grammars) -> None:
        top.abort(*range(len(top.features.constraints.all_waiting()), 0, -1))
        top.scheduler.receive(block=False)
        assert not top.features.constraints.all_waiting()

    few, many = lines_of_each(leave, lambda uid: pattern % uid if "%" in pattern else pattern)
    assert many < MAX_TIMES * few


def test_why_a_request_waits_is_known_without_a_look_at_the_others() -> None:
    def ask(top: BenchTop, _: Grammars) -> None:
        for uid in range(1, len(top.features.constraints.all_waiting()) + 1):
            found = top.scheduler.where(uid)
            assert found is not None and found["reason"] == "its regex is being compiled"

    few, many = lines_of_each(ask, "a{%d}".__mod__)
    assert many < MAX_TIMES * few


def test_a_constraint_that_is_compiled_is_found_without_a_look_at_the_others() -> None:
    def compile_each(top: BenchTop, grammars: Grammars) -> None:
        while grammars.compiling:
            grammars.release(REFUSED, most=1)
            top.inbox.send(Wake())
            top.scheduler.receive(block=False)
        assert not top.features.constraints.all_waiting()

    few, many = lines_of_each(compile_each, "a{%d}".__mod__)
    assert many < MAX_TIMES * few


def test_requests_that_wait_for_one_constraint_begin_over_many_turns_and_leave_in_between() -> None:
    num = 2 * MAX_SETTLED + 5
    grammars, top = waiting(0, str)
    for uid in range(1, num + 1):
        top.add(uid, PROMPT, 2, constraint=Constraint(ConstraintKind.REGEX, "a|b", place="regex"))
    while not top.inbox.is_empty:
        top.scheduler.receive(block=False)
    grammars.release()
    top.inbox.send(Wake())
    queued = []
    for _ in range(2):
        top.scheduler.receive(block=False)
        queued.append(len(top.scheduler.waiting))
        assert not top.scheduler.waits
    assert queued == [MAX_SETTLED, 2 * MAX_SETTLED]
    top.abort(1, num)  # one that has its constraint, and one that has not taken it yet
    top.run()
    assert len(top.finish) == num and grammars.num_requests == 0
    assert {uid for uid, finish in top.finish.items() if finish.aborted} == {1, num}
