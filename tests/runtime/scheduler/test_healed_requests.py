"""Requests whose prompt is healed, in the scheduler: steps that they take, retractions and aborts in a search."""

from typing import Any

import pytest
from bench_top import BenchTop
from grammars import Grammars
from schedules import TOKENIZER

from ramet.ipc.messages import FinishKind
from ramet.runtime.scheduler.features.tail_search import Healing

END = 0
overlaps = pytest.mark.parametrize("overlap", ["off", "on"])
SPELLED = [TOKENIZER.token_bytes(token) or b"" for token in range(TOKENIZER.vocab_size)]
LONG = min(text for text in SPELLED if len(text) == 7 and text.startswith(b" ") and text[1:].isalpha())
TAIL = [SPELLED.index(bytes([letter])) for letter in LONG[:-1]]  # that a longer token begins with, letter by letter


def bench(**options: Any) -> BenchTop:
    return BenchTop(tokenizer=TOKENIZER, grammars=Grammars(TOKENIZER, frozenset([END])), **options)


def searching(top: BenchTop, uid: int) -> bool:
    running = top.scheduler.running.get(uid)
    return running is not None and running.request.own.get(Healing) is not None and running.num_output > 0


@overlaps
def test_nobody_is_told_of_a_token_before_the_prompts_end_is_found(overlap: str) -> None:
    top = bench(overlap=overlap)
    top.add(1, [40, 50, *TAIL], 8, token_healing=True)
    looked = 0
    while not top.finish:
        top.turn()
        looked += searching(top, 1)
        assert not (searching(top, 1) and top.tokens[1])
    assert looked > 2 and len(top.tokens[1]) == 8 and top.finish[1].kind is FinishKind.LENGTH
    assert b"".join(SPELLED[token] for token in top.tokens[1]).startswith(LONG[:-1])
    assert top.opened[1].prompt_tokens == 2 and top.opened[1].tail_bytes == 6


@overlaps
@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("asked", [{}, {"temperature": 1.0, "sampling_seed": 4}, {"frequency_penalty": 1.0}])
def test_a_search_that_is_retracted_begins_anew_and_finds_the_same(
    overlap: str, page: int, asked: dict[str, Any]
) -> None:
    free = bench()
    free.add(2, [40, 50, *TAIL], 12, token_healing=True, **asked)
    free.run()
    retracted_inside, top = 0, bench(overlap=overlap, page_size=page, total=4096)
    for attempt in range(2, 40, 3):
        total = 64 // page * page
        top = bench(overlap=overlap, page_size=page, total=total, schedule_conservativeness=0.01)
        top.add(1, list(range(60, 60 + 18)), 44)
        for _ in range(attempt):
            top.turn()
        top.add(2, [40, 50, *TAIL], 12, token_healing=True, **asked)
        inside, before = False, 0
        while not top.scheduler.idle:
            inside = searching(top, 2)
            top.turn()
            waiting = top.scheduler.waiting.get(2)
            if waiting is not None and waiting.num_retractions > before:
                before = waiting.num_retractions
                if inside:
                    assert waiting.own[Healing].search.num_nodes == 0
                    retracted_inside += 1
        assert top.tokens[2] == free.tokens[2] and len(top.tokens[1]) == 44
    assert retracted_inside


@overlaps
def test_an_abort_in_a_search_leaves_nothing(overlap: str) -> None:
    top = bench(overlap=overlap)
    top.add(1, [40, 50, *TAIL], 8, token_healing=True, frequency_penalty=1.0)
    while not searching(top, 1):
        top.turn()
    top.abort(1)
    top.run()
    state = top.reporter.state()
    assert state["owned_tokens"] == state["penalty_slots"] == 0
    assert top.tokens[1] == [] and top.finish[1].kind is FinishKind.ABORT


@overlaps
def test_where_the_first_token_covers_the_tail_no_step_is_added(overlap: str) -> None:
    """One letter that ends a prompt is covered by every token that has no probability left inside it."""
    letter = next(t for t in TAIL if len(TOKENIZER.token_bytes_table(4096).begin_with(SPELLED[t])) > 3)
    healed, plain = bench(overlap=overlap), bench(overlap=overlap)
    healed.add(1, [40, 50, letter], 8, token_healing=True)
    plain.add(1, [40, 50], 8)
    healed.run(), plain.run()
    assert healed.opened[1].tail_bytes == 1 and len(healed.tokens[1]) == len(plain.tokens[1]) == 8
    assert healed.runner.steps <= plain.runner.steps + (overlap == "on")
