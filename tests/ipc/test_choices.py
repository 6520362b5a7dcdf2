"""The methods pick what their definitions say."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from ramet.ipc import choices
from ramet.ipc.choices import Path

IDS = st.lists(st.integers(0, 3), min_size=1, max_size=5).map(tuple)
EACH = st.lists(IDS, min_size=1, max_size=8)


def path(*tokens: tuple[int, float], end: float | None = None) -> Path:
    return Path([(value, token, None) for token, value in tokens], end)


PATHS = [path((1, -1.0), (2, -1.0), end=-5.0), path((3, -1.5), end=-0.1), path((1, -1.0), (4, -3.0), end=-1.0)]


@pytest.mark.parametrize(
    ("method", "scores"),
    [
        ("token_length_normalized", [-1.0, -1.5, -2.0]),
        ("exact_sequence", [-7.0, -1.6, -5.0]),
        ("unconditional_likelihood_normalized", [-0.5, 1.5, 0.0]),
        ("greedy_token_selection", [2.0, 0.0, 1.0]),
    ],
)
def test_scores_are_those_of_the_method(method: str, scores: list[float]) -> None:
    bare = [path((1, -0.5), (2, -0.5)), path((3, -3.0)), path((1, -1.0), (4, -3.0))]
    assert choices.scores_of(method, PATHS, bare) == pytest.approx(scores)


def test_a_greedy_walk_takes_the_best_next_token_whatever_follows_it() -> None:
    assert choices.greedy_walk([path((1, -1.0), (2, -90.0)), path((3, -1.1))]) == [1, 0]


def test_an_end_competes_with_the_mean_of_its_choice() -> None:
    """`a` against `a b`, and `a b` against `a c`."""
    short, better, worse = path((1, -2.0)), path((1, -2.0), (2, -1.9)), path((1, -2.0), (2, -2.1))
    assert choices.greedy_walk([short, better]) == [1, 2]
    assert choices.greedy_walk([short, worse]) == [2, 1]
    assert choices.greedy_walk([worse, short]) == [1, 2]


def test_of_equal_choices_the_first_one_wins() -> None:
    twice = [path((3, -2.0)), path((1, -1.0)), path((1, -1.0))]
    for method in ("token_length_normalized", "greedy_token_selection"):
        assert choices.best(choices.scores_of(method, twice, [])) == 1
    assert choices.greedy_walk([path((1, -1.0)), path((2, -1.0))]) == [1, 0]


def walked(paths: list[Path]) -> int:
    """The same by the words of the definition: candidates are thinned out token by token."""
    left, depth = list(range(len(paths))), 0
    while len({paths[i].ids for i in left}) > 1:
        ways = [(-paths[i].mean, i, None) for i in left if len(paths[i].tokens) == depth]
        ways += [
            (-value, i, token)
            for i in left
            for value, token, _ in paths[i].tokens[depth : depth + 1]
            if value is not None
        ]
        _, _, taken = min(ways, key=lambda way: way[:2])
        left = [i for i in left if (paths[i].ids[depth : depth + 1] or (None,))[0] == taken]
        depth += 1
    return left[0]


@examples(300, 3000)
@given(EACH, st.integers(0, 1 << 16))
def test_the_greedy_pick_is_that_of_its_definition(each: list[tuple[int, ...]], seed: int) -> None:
    nodes: dict[tuple[int, ...], float] = {}
    draw = random.Random(seed)
    for ids in each:
        for i in range(1, len(ids) + 1):
            nodes.setdefault(ids[:i], -draw.random() * 4)
    paths = [path(*((ids[i], nodes[ids[: i + 1]]) for i in range(len(ids)))) for ids in each]
    assert each[choices.best(choices.scores_of("greedy_token_selection", paths, []))] == each[walked(paths)]


# -- probabilities and draws -------------------------------------------------------------------------------------------


def test_probabilities_add_up_to_one_and_keep_their_ratios() -> None:
    found = choices.softmax([-1000.0, -1001.0, -1e38])
    assert math.fsum(found) == pytest.approx(1.0) and found[0] / found[1] == pytest.approx(math.e)
    assert found[2] == 0.0


def test_a_low_temperature_draws_the_likeliest_one_and_a_high_one_any() -> None:
    sums = [-3.0, -1.0, -2.0]
    assert {choices.draw(choices.softmax(sums, 1e-310), seed) for seed in range(20)} == {1}
    assert {choices.draw(choices.softmax(sums, 1e30), seed) for seed in range(40)} == {0, 1, 2}


def test_draws_follow_the_probabilities() -> None:
    """2000 draws of a choice of probability p: within 5 standard deviations of 2000 p."""
    weights = choices.softmax([0.0, -1.0, -2.0])
    drawn = [choices.draw(weights, seed) for seed in range(2000)]
    for i, weight in enumerate(weights):
        assert abs(drawn.count(i) - 2000 * weight) < 5 * math.sqrt(2000 * weight * (1 - weight))


def test_a_seed_draws_the_same_one() -> None:
    weights = choices.softmax([0.0, -0.1, -0.2])
    assert len({choices.draw(weights, 7) for _ in range(20)}) == 1
    assert len({choices.draw(weights, None) for _ in range(200)}) > 1


def test_a_walk_reads_each_token_once() -> None:
    """Choices that share a thousand tokens would else be compared a million times."""

    class Counted(int):
        read = 0

        def __hash__(self) -> int:
            Counted.read += 1
            return super().__hash__()

    num, length = 20, 300
    paths = [path(*((Counted(k), -1.0) for k in range(length)), (Counted(1000 + i), -float(i))) for i in range(num)]
    steps = choices.greedy_walk(paths)
    assert max(range(num), key=steps.__getitem__) == 0
    assert Counted.read < 6 * num * length
