"""The mix: how much of the training text each family makes.

Decides the shares, in characters, so that families of short documents are not drowned by long ones. Knows no tokenizer.
"""

from bisect import bisect
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import accumulate
from types import ModuleType

from scripts.demo_model.corpus import arithmetic, chats, choice, facts, labels, passages, prose, sequences, tools
from scripts.demo_model.corpus.draw import Document, Draw
from scripts.demo_model.corpus.long import long_document

# Share of the characters, weight of a produced token in the loss, module. A label or a letter is one or two tokens in
# fifty, but the hardest to learn: they count more.
FIRST = (
    (15, 1.0, facts),
    (5, 1.0, arithmetic),
    (9, 1.0, sequences),
    (27, 3.0, labels),
    (13, 1.0, passages),
    (4, 3.0, choice),
    (5, 0.5, prose),
    (15, 1.0, chats),
    (7, 1.0, tools),
)
# Once labels can be told from shots (after about 20 M tokens, all at once), what is still wrong gets their room.
SECOND = (
    (7, 1.0, facts),
    (5, 1.0, arithmetic),
    (10, 1.0, sequences),
    (8, 3.0, labels),
    (24, 1.0, passages),
    (15, 4.0, choice),
    (4, 0.5, prose),
    (17, 1.0, chats),
    (10, 1.0, tools),
)
Shares = tuple[tuple[int, float, ModuleType], ...]
SAMPLE = 200  # documents of a module whose mean length turns shares into counts

Generator = Callable[[Draw], Document]


@cache
def _table(shares: Shares) -> tuple[list[tuple[Generator, float]], list[float]]:
    """Every generator with its emphasis, and the running total of its probability per document."""
    generators: list[tuple[Generator, float]] = []
    chances: list[float] = []
    for share, emphasis, module in shares:
        members = [function for _, function in module.FAMILIES]
        weights = [weight for weight, _ in module.FAMILIES]
        draw = Draw(module.__name__.rpartition(".")[2])
        chosen = draw.random.choices(members, weights, k=SAMPLE)
        mean = sum(len(function(draw).text) for function in chosen) / SAMPLE
        generators += [(function, emphasis) for function in members]
        chances += [share / mean * weight / sum(weights) for weight in weights]
    total = sum(chances)
    return generators, [running / total for running in accumulate(chances)]


def make_document(draw: Draw, shares: Shares = FIRST) -> Document:
    """One document of the mix."""
    generators, totals = _table(shares)
    generator, emphasis = generators[min(bisect(totals, draw.random.random()), len(totals) - 1)]
    return replace(generator(draw), emphasis=emphasis)


def make_long_document(draw: Draw, tokens: int, shares: Shares = FIRST) -> Document:
    """For rows of `tokens`: by length nearly half long documents, the rest of the ordinary mix."""
    if draw.chance(0.02):
        return long_document(draw, draw.number(tokens // 4, tokens * 7 // 8))
    return make_document(draw, shares)
