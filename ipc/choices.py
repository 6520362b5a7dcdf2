"""Which of several texts the model would rather write: how their log-probabilities are compared.

Knows tokens and log-probabilities, no text, no engine and no service. A log-probability is log_softmax of the raw
logits after all that stands before the token; that of a token with nothing before it is None, and counts as 0.
"""

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

Scored = tuple[float | None, int, str | None]  # log-probability, token, its text where it was asked for


class Path(NamedTuple):
    """The tokens of one choice. `end`: log-probability that the output ends behind them; None: not asked for."""

    tokens: list[Scored]
    end: float | None = None

    @property
    def logprob(self) -> float:
        return math.fsum(value for value, _, _ in self.tokens if value is not None)

    @property
    def mean(self) -> float:
        return self.logprob / len(self.tokens)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token for _, token, _ in self.tokens)


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
    each = [path.ids for path in paths]
    first = {ids: i for i, ids in reversed(list(enumerate(each)))}  # of equal ones
    left = sorted(first.values())
    steps, depth = dict.fromkeys(left, 0), 0
    while len(left) > 1:
        ways: dict[int | None, list[int]] = {}  # a next token, or None for a path's end: who goes there
        for i in left:
            ways.setdefault(each[i][depth] if depth < len(each[i]) else None, []).append(i)
        left = max(ways.values(), key=lambda group: _next(paths[group[0]], depth))
        depth += 1
        for i in left:
            steps[i] = depth
    return [steps[first[ids]] for ids in each]


def _next(path: Path, depth: int) -> float:
    if depth == len(path.tokens):
        return path.mean
    return path.tokens[depth][0] or 0.0


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
