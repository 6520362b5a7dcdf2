"""The search alone, on made-up distributions: it finds the best sequence, or draws one with its exact probability."""

import math
import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from ramet.runtime.sampling.columns import HealedPlace
from ramet.runtime.scheduler.features.tail_search import MAX_NODES, TailSearch
from ramet.runtime.text.healing import Tail
from ramet.runtime.text.token_bytes import TokenBytes

TEXTS = [b"a", b"b", b"ab", b"ba", b"aba", b"abab", b"bb", b"abq", b"aq", b"bq", b"q", b"babq"]
TABLE = TokenBytes((text, token) for token, text in enumerate(TEXTS))
OTHER = len(TEXTS)  # what has no place in any tail
Path = tuple[int, ...]
Probabilities = Callable[[Path], np.ndarray]  # of what follows [OTHER + 1]


def made_up(seed: int, sharpness: float = 2.0, zeros: float = 0.0) -> Probabilities:
    def probabilities(path: Path) -> np.ndarray:
        draw = np.random.default_rng([seed, *path])
        logits = draw.normal(0, sharpness, OTHER + 1)
        logits[draw.random(OTHER + 1) < zeros] = -np.inf
        logits[OTHER] = max(logits[OTHER], -9)
        weights = np.exp(logits)
        return weights / weights.sum()

    return probabilities


def every_sequence(tail: bytes, most: int, probabilities: Probabilities) -> dict[Path, float]:
    found: dict[Path, float] = {}

    def go_on(path: Path, rest: bytes, probability: float) -> None:
        following = probabilities(path)
        for token, text in enumerate(TEXTS):
            if text.startswith(rest):
                found[*path, token] = probability * following[token]
            elif rest.startswith(text) and len(path) + 1 < most:
                go_on((*path, token), rest[len(text) :], probability * following[token])

    go_on((), tail, 1.0)
    return found


def answer(search: TailSearch, tail: Tail, probabilities: Probabilities, draw: random.Random | None) -> Path | None:
    """`draw` None: the best that covers is drawn."""
    with np.errstate(divide="ignore"):
        while not (search.found or search.failed):
            p = probabilities(search.at)
            ids = list(tail.covering(search.offset))
            weights = [p[token] for token in ids]
            covers = sum(weights) > 0
            token = OTHER
            if covers:
                token = ids[int(np.argmax(weights))] if draw is None else draw.choices(ids, weights)[0]
            inner = np.log([p[each.token] for each in search.inner]).astype(np.float32)
            place = HealedPlace(math.log(sum(weights)) if covers else -math.inf, float(np.log(p[token])), inner)
            search.learn(place, token, covers)
    return search.at if search.found else None


@pytest.mark.parametrize("tail", [b"a", b"ab", b"abab", b"babab", b"bbab"])
@pytest.mark.parametrize("most", [1, 3, 5])
@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_the_best_sequence_is_found(tail: bytes, most: int, zeros: float) -> None:
    several = 0
    for seed in range(40):
        probabilities = made_up(seed, zeros=zeros)
        everything = {path: p for path, p in every_sequence(tail, most, probabilities).items() if p > 0}
        asked = Tail(tail, TABLE, most)
        search = TailSearch(asked, None)
        found = answer(search, asked, probabilities, None)
        assert (found is None) == (not everything)
        if found is not None:
            assert everything[found] == pytest.approx(max(everything.values()), rel=1e-5)
            several += len(found) > 1
    assert several or most == 1 or len(tail) == 1


@pytest.mark.parametrize(
    "tail, seed, zeros", [(b"abab", 1, 0.0), (b"babab", 2, 0.3), (b"ab", 3, 0.0), (b"bbab", 4, 0.2)]
)
def test_a_draw_has_the_probability_of_its_sequence_given_the_tail(tail: bytes, seed: int, zeros: float) -> None:
    """A count of N independent draws leaves N p ± 6 sqrt(N p (1 - p)) + 3 less than once in 1e7."""
    probabilities, num = made_up(seed, 1.2, zeros), 6000
    everything = {path: p for path, p in every_sequence(tail, 5, probabilities).items() if p > 0}
    total, asked, draw = sum(everything.values()), Tail(tail, TABLE, 5), random.Random(seed)
    drawn = Counter(answer(TailSearch(asked, each), asked, probabilities, draw) for each in range(num))
    assert drawn.keys() <= everything.keys() and len(drawn) > 2
    for path, p in everything.items():
        expected = num * p / total
        assert abs(drawn[path] - expected) <= 6 * math.sqrt(expected * (1 - p / total)) + 3, (
            path,
            drawn[path],
            expected,
        )


def test_a_first_token_that_covers_ends_the_search_at_once_where_it_is_the_best() -> None:
    tail = Tail(b"ab", TABLE, 9)
    search = TailSearch(tail, None)
    search.learn(HealedPlace(-0.5, -1.0, np.full(len(search.inner), -1.0, np.float32)), 2, True)
    assert search.found and search.at == (2,) and search.num_nodes == 1  # of equals, what is complete


def test_the_same_seed_gives_the_same_sequence() -> None:
    tail, probabilities = Tail(b"babab", TABLE, 9), made_up(7, 1.0)
    twice = [[answer(TailSearch(tail, s), tail, probabilities, random.Random(s)) for s in range(50)] for _ in "ab"]
    assert twice[0] == twice[1] and len(set(twice[0])) > 5


def test_a_search_without_end_is_given_up() -> None:
    """Only spellings by single bytes, all equally probable, and nothing that covers: 2^n of them would be tried."""
    table = TokenBytes([(b"a", 0), (b"aa", 1), (b"a" * 60, 2)])
    tail = Tail(b"a" * 40, table, 99)
    search = TailSearch(tail, None)
    while not search.failed:
        assert not search.found
        search.learn(HealedPlace(-math.inf, -1.0, np.zeros(len(search.inner), np.float32)), 2, False)
    assert search.num_nodes == MAX_NODES
