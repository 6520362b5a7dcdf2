"""A lease is given back by the prompt that asked for it, whether its end was healed then or is healed now."""

import pytest
from bench_top import BenchTop
from grammars import Grammars
from schedules import TOKENIZER
from test_healed_requests import END, SPELLED, TAIL

PROMPT = [40 + i % 9 for i in range(40)] + TAIL
pages = pytest.mark.parametrize("page_size", [1, 16])
OTHER_TAIL = [*TAIL[:-1], SPELLED.index(b"q")]


def bench(page_size: int) -> BenchTop:
    grammars = Grammars(TOKENIZER, frozenset([END]))
    return BenchTop(tokenizer=TOKENIZER, grammars=grammars, page_size=page_size, total=1024)


def ask(top: BenchTop, uid: int, prompt: list[int], num_new: int, lease_s: float) -> None:
    """A request, to its end, healed where an output is asked for."""
    top.add(uid, prompt, num_new, token_healing=num_new > 0, prefix_lease_s=lease_s)
    top.run()


def held(top: BenchTop) -> int:
    return len(top.features.leases.leases)


@pages
@pytest.mark.parametrize("asked", [0, 1, 2, 8])
@pytest.mark.parametrize("given_back", [0, 1, 2, 8])
def test_the_same_prompt_gives_a_lease_back(asked: int, given_back: int, page_size: int) -> None:
    top = bench(page_size)
    ask(top, 1, PROMPT, asked, 60)
    assert held(top) == 1
    ask(top, 2, PROMPT, given_back, 0)
    assert held(top) == 0


def test_prompts_end_at_different_places_where_they_are_healed() -> None:
    top = bench(1)
    for uid, num_new in enumerate((0, 1, 2, 8), 1):
        ask(top, uid, PROMPT, num_new, 60)
    assert held(top) > 2
    ask(top, 9, PROMPT, 0, 0)
    assert held(top) == 0


@pytest.mark.parametrize("asked", [0, 8])
@pytest.mark.parametrize("given_back", [0, 8])
@pytest.mark.parametrize("other", [PROMPT[:-1] + OTHER_TAIL, [*PROMPT[:20], *TAIL], [*PROMPT, 41, *TAIL]])
def test_another_prompt_does_not(asked: int, given_back: int, other: list[int]) -> None:
    top = bench(1)
    ask(top, 1, [*PROMPT, *PROMPT[:40]], 0, 60)
    ask(top, 2, PROMPT, asked, 60)
    ask(top, 3, other, given_back, 0)
    assert held(top) == 2


def test_what_a_prompt_has_behind_its_healed_end_is_compared_as_text() -> None:
    top = bench(1)
    ask(top, 1, PROMPT, 8, 60)
    for uid, end in enumerate(([*TAIL[:-1]], OTHER_TAIL, [*TAIL, 41]), 2):
        ask(top, uid, PROMPT[:40] + end, 0, 0)
        assert held(top) == 1
    ask(top, 9, PROMPT, 0, 0)
    assert held(top) == 0


@pages
def test_namespaces_keep_their_leases(page_size: int) -> None:
    top = bench(page_size)
    ask(top, 1, PROMPT, 8, 60)
    top.add(2, PROMPT, 0, prefix_lease_s=0, namespace=("a",))
    top.add(3, PROMPT, 8, token_healing=True, prefix_lease_s=0, namespace=("a",))
    top.run()
    assert held(top) == 1
