"""The order of what the scheduler tells: opened, tokens, closed, one message a step."""

import numpy as np
from bench_top import BenchTop
from hash_runner import VOCABULARY, expected_output

from ramet.ipc.messages import TokenStep, unpack_ids


def prompt_of(seed: int, length: int = 10) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def steps_of(told: list[TokenStep], uid: int) -> tuple[list[int], list[int], list[int]]:
    """The messages that open `uid`, bring it tokens, and close it."""
    opened = [i for i, step in enumerate(told) for o in step.opened if o.uid == uid]
    tokens = [i for i, step in enumerate(told) for u in step.uids if u == uid]
    closed = [i for i, step in enumerate(told) for c in step.closed if c.uid == uid]
    return opened, tokens, closed


def test_opened_comes_with_the_first_token_and_closed_with_the_last():
    top = BenchTop(rows=3)
    for uid in range(1, 9):
        top.add(uid, prompt_of(uid), uid)
    top.run()
    for uid in range(1, 9):
        opened, tokens, closed = steps_of(top.told, uid)
        assert opened == tokens[:1] and closed == tokens[-1:]
        assert tokens == list(range(tokens[0], tokens[0] + uid))  # one token in each step


def test_opened_precedes_the_first_token_of_a_prompt_that_takes_several_steps():
    top = BenchTop(chunked_prefill_size=8)
    top.add(1, prompt_of(1, 30), 2)
    top.run()
    opened, tokens, closed = steps_of(top.told, 1)
    assert len(opened) == len(closed) == 1 and opened[0] < tokens[0] <= closed[0]


def test_a_stop_token_and_its_closing_come_in_one_step():
    stop = expected_output(prompt_of(1), 4)[3]
    top = BenchTop()
    top.add(1, prompt_of(1), 30, stop_token_ids=(stop,))
    top.run()
    last = top.told[-1]
    assert (last.uids, unpack_ids(last.tokens), [c.uid for c in last.closed]) == ([1], [stop], [1])


def test_a_request_aborted_before_it_ran_is_opened_and_closed_in_one_step():
    top = BenchTop(rows=1)
    top.add(1, prompt_of(1), 50)
    top.add(2, prompt_of(2), 50)
    top.turn()
    top.abort(2)
    top.turn()
    opened, tokens, closed = steps_of(top.told, 2)
    assert opened == closed and len(closed) == 1 and not tokens
    assert top.opened[2].prompt_tokens == 10 and top.opened[2].cached_tokens == 0


def test_a_request_that_arrives_together_with_its_abort_is_told_once():
    top = BenchTop()
    top.add(1, prompt_of(1), 50)
    top.abort(1)
    top.turn()
    assert top.runner.steps == 0 and [c.uid for step in top.told for c in step.closed] == [1]


def test_an_abort_of_nobody_or_of_one_that_has_ended_says_nothing():
    top = BenchTop()
    top.add(1, prompt_of(1), 2)
    top.run()
    told = len(top.told)
    top.abort(1, 77)
    top.turn()
    assert len(top.told) == told


def test_one_message_a_step_and_none_without_news():
    top = BenchTop(chunked_prefill_size=8)
    top.add(1, prompt_of(1, 40), 3)
    top.turn()
    assert len(top.told) == 1 and not top.told[0].uids  # opened
    top.turn()
    assert len(top.told) == 1  # a chunk in the middle is no news
    top.run()
    assert len(top.told) == 1 + 3
