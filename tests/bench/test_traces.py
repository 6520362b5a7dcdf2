"""The traces of the workloads have the lengths and the sharing that they are named after, and come from the seed."""

from collections.abc import Callable
from typing import Any

import pytest

from ramet.bench.programs import traces

FAMILIES: list[Callable[..., Any]] = [
    traces.mmlu, traces.hellaswag, traces.gsm8k, traces.retrieval, traces.in_batch, traces.shared_and_own,
    traces.articles, traces.unshared, traces.react, traces.generative_agents, traces.multi_chain,
    traces.tree_of_thought, traces.tips, traces.judge, traces.long_json, traces.pages, traces.names, traces.documents,
    traces.chats, traces.skeleton_of_thought,
]  # fmt: skip


def length(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_a_seed_is_a_trace(family: Callable[..., Any]):
    assert family(6, 1) == family(6, 1) != family(6, 2)


def test_mmlu_has_ten_heads_in_any_order():
    shots = traces.mmlu(200)
    heads = [shot.head for shot in shots]
    assert len(set(heads)) == 10 and len(set(heads[:20])) > 4 and heads != sorted(heads, key=heads.index)
    assert all(350 <= length(shot.head) <= 1500 and 40 <= length(shot.question) <= 200 for shot in shots)


def test_react_agents_make_four_moves_on_average():
    agents = traces.react(1000)
    moves = [move for agent in agents for move in agent.moves]
    assert 3.9 <= len(moves) / len(agents) <= 4.12
    assert len({agent.head for agent in agents}) == 1 and length(agents[0].head) == 1650
    observed = [length(move.observation) for move in moves]
    assert max(observed) == 392 and 92 <= sum(observed) / len(observed) <= 104


def test_a_tree_of_thought_has_30_thoughts():
    assert sum(map(len, traces.tree_of_thought(1)[0].outputs)) == 30


def test_figure_12_grows_what_it_is_told_to_grow():
    shots = traces.shared_and_own(32, shared=512, own=128)
    assert len({shot.head for shot in shots}) == 4 and len({shot.head for shot in traces.shared_and_own(128)}) == 16
    assert {(length(shot.head), length(shot.question), shot.output) for shot in shots} == {(512, 128, 256)}
    asked = traces.articles(5, questions=4)
    assert len(asked) == 20 and len({shot.head for shot in asked}) == 5
    assert {(length(shot.head), length(shot.question)) for shot in asked} == {(1000, 256)}


def test_nothing_is_shared_where_nothing_should_be():
    assert len({shot.question.split()[0] for shot in traces.unshared(50)}) == 50


def test_long_things_are_long():
    page = traces.long_json(1)[0]
    assert length(page.text) == 10000 and page.outputs == (8, 8, 8, 24)
    asked = traces.documents(11)
    assert len({each.segments for each in asked}) == 2 and [*map(length, asked[0].segments)] == [1200] * 10
