"""Which of several texts the model would rather write: what is computed for it, and how the choices are compared.

Knows tokens and log-probabilities, no text and no engine. Choices are paths of a trie of tokens. Only its leaves are
computed, in sorted order, each from where it leaves the one before:

    a b c        computed: a b c
    a b          read from the one above
    a d e        computed: d e

A log-probability is log_softmax of the raw logits after all that stands before the token.
"""

import math
import random
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from ramet.runtime.logprobs import Triple

Ids = tuple[int, ...]


class Leaf(NamedTuple):
    """A path that is computed from its token `start` on."""

    ids: Ids
    start: int


class Path(NamedTuple):
    """The tokens of one choice. `end`: log-probability that the output ends behind them; None: not asked for."""

    tokens: list[Triple]
    end: float | None = None

    @property
    def logprob(self) -> float:
        return math.fsum(value for value, _, _ in self.tokens if value is not None)

    @property
    def mean(self) -> float:
        return self.logprob / len(self.tokens)

    @property
    def ids(self) -> Ids:
        return tuple(token for _, token, _ in self.tokens)


class Trie(NamedTuple):
    """`choices`: of each leaf the first choice that is read from it. `ways`: of each choice its leaf and its length."""

    leaves: list[Leaf]
    choices: list[int]
    ways: list[tuple[int, int]]

    @classmethod
    def of(cls, each: Sequence[Ids], behind: Ids = ()) -> "Trie":
        """`behind`: what is computed after each leaf."""
        ordered = sorted(set(each))
        ends = [ids for ids, after in zip(ordered, [*ordered[1:], ()]) if after[: len(ids)] != ids]
        leaves = [Leaf(ids + behind, num_common(before, ids)) for before, ids in zip([(), *ends], ends)]
        ways = [(bisect_left(ends, ids), len(ids)) for ids in each]  # the first that is not before it begins with it
        choices = [0] * len(leaves)
        for i, (leaf, _) in reversed(list(enumerate(ways))):
            choices[leaf] = i
        return cls(leaves, choices, ways)


def num_common(one: Ids, other: Ids) -> int:
    """How many tokens both begin with."""
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


# -- which one ---------------------------------------------------------------------------------------------------------


def scores_of(method: str, paths: Sequence[Path], bare: Sequence[Path]) -> list[float]:
    """By the method; the largest wins. `bare`: the choices without the prompt, where it needs them."""
    match method:
        case "token_length_normalized":
            return [path.mean for path in paths]
        case "unconditional_likelihood_normalized":
            return [path.mean - alone.mean for path, alone in zip(paths, bare, strict=True)]
        case "exact_sequence":
            return [path.logprob + (path.end or 0.0) for path in paths]
    return [float(num) for num in greedy_walk(paths)]


def greedy_walk(paths: Sequence[Path]) -> list[int]:
    """How many steps of a walk through the trie each path is on; it ends where one path is left.

    A step takes the best of the tokens that some path has next. A path that ends there competes with the mean of its
    own tokens' log-probabilities.
    """
    steps, left = [0] * len(paths), list(range(len(paths)))
    while len({paths[i].ids for i in left}) > 1:
        depth = steps[left[0]]
        ways: dict[int | None, list[int]] = {}  # a next token, or None for a path's end: who goes there
        for i in left:
            ways.setdefault(paths[i].tokens[depth][1] if depth < len(paths[i].tokens) else None, []).append(i)
        left = max(ways.values(), key=lambda group: _next(paths[group[0]], depth))
        for i in left:
            steps[i] += 1
    return steps


def _next(path: Path, depth: int) -> float:
    if depth == len(path.tokens):
        return path.mean
    value = path.tokens[depth][0]
    assert value is not None
    return value


def softmax(values: Sequence[float], temperature: float = 1.0) -> list[float]:
    best = max(values)
    weights = [math.exp((value - best) / temperature) for value in values]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def draw(weights: Sequence[float], seed: int | None) -> int:
    """An index by its probability. The same seed and weights give the same one."""
    return random.Random(seed).choices(range(len(weights)), weights)[0]


def best(scores: Sequence[float]) -> int:
    """The first of the best."""
    return max(range(len(scores)), key=scores.__getitem__)
