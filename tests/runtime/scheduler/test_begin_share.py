"""Thousands of prompts of one request beside others' rows: some begin in each step, as many as steps have time for."""

import pytest
from bench_top import BenchTop

from ramet.runtime.scheduler.begin_share import LOOK_EVERY, MIN_ROOM, ROW_TOKENS
from ramet.runtime.scheduler.step import Step

PROMPT = 4
NUM, STREAMS, BATCH, OTHERS = 300, 2, 1000, 5000


def top_with(streams: int = STREAMS, num: int = NUM, *, apart: bool = False, overlap: str = "off") -> BenchTop:
    """`streams` rows draw, then a request of `num` prompts arrives. `apart`: each prompt is a request of its own."""
    top = BenchTop(rows=64, total=16384, deep_checks=False, check_invariants=False, overlap=overlap)
    for uid in range(1, streams + 1):
        top.add(uid, [uid, 2, 3], 400)
        top.clock.advance(1.0)
    top.turn()
    for uid in range(BATCH, BATCH + num):
        top.add(uid, [uid % 200 + 10, uid // 200, 7, 8], 1)
        if apart:
            top.clock.advance(1.0)
    return top


def num_begun(top: BenchTop, turns: int, step_s: float = 0.0, prompt_s: float = 0.0) -> list[int]:
    """How many prompts begin in each turn, where a step takes so long by itself and for each of its prompts."""
    begun = list[int]()

    def after_step(step: Step, *_: object) -> None:
        begun.append(len(step.prefills))
        top.clock.advance(step_s + prompt_s * len(step.prefills))

    top.listeners.insert(0, after_step)
    for _ in range(turns):
        top.turn()
    return begun


FEW = -(-MIN_ROOM // (ROW_TOKENS + PROMPT))


def test_of_one_request_few_prompts_begin_beside_rows_of_others() -> None:
    begun = num_begun(top_with(), 4)
    assert begun[0] == 1 and begun[1] == FEW and max(begun) < 3 * FEW


def test_alone_all_prompts_begin_for_which_there_are_rows() -> None:
    assert num_begun(top_with(streams=0), 1) == [64]


def test_prompts_that_come_one_by_one_begin_as_before() -> None:
    assert num_begun(top_with(apart=True), 1) == [64 - STREAMS]


def test_a_single_prompt_of_others_begins_beside_the_many() -> None:
    top = top_with()
    num_begun(top, 2)
    top.clock.advance(1.0)
    top.add(OTHERS, [9, 9, 9, 9], 1)
    top.turn()
    top.turn()
    assert OTHERS in top.finish


@pytest.mark.parametrize(("prompt_s", "more"), [(0.0, True), (2.0, False)])
def test_steps_that_take_no_longer_have_room_for_more(prompt_s: float, more: bool) -> None:
    begun = num_begun(top_with(), LOOK_EVERY, step_s=1.0, prompt_s=prompt_s)
    assert max(begun) > 4 * FEW if more else max(begun) == FEW


def test_few_steps_take_too_long_where_their_prompts_take_time() -> None:
    """A step with k prompts lasts 10 + k, so 6 are within 1.5 times one with a single prompt."""
    begun = num_begun(top_with(num=3000), 380, step_s=10.0, prompt_s=1.0)[100:]
    assert sum(num > 6 for num in begun) < len(begun) / 12 and max(begun) < 10
    assert sum(begun) > 4 * len(begun)


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_outputs_are_those_without_a_share(overlap: str) -> None:
    outputs = []
    for apart in (False, True):
        top = top_with(apart=apart, overlap=overlap)
        top.run()
        assert len(top.finish) == NUM + STREAMS
        outputs.append(top.tokens)
    assert outputs[0] == outputs[1]


def test_who_waits_because_of_it_is_told_why() -> None:
    top = top_with()
    top.turn()
    found = top.scheduler.where(BATCH + NUM - 1)
    assert found is not None and str(found["reason"]).startswith("other prompts of its request")
