"""Seeded choices for documents, and the split: which combinations only the evaluation may see.

Decides what a document is and on which side of the split a combination lies. Knows no family and no tokenizer.
A combination (two summands, a country with a phrasing, a pair of label words) is held out by a hash of its values, so
the split needs no list, never depends on the seed, and no order of drawing can move a combination across it.
"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
HELD_OUT_OF_256 = 26  # about one combination in ten


@dataclass(frozen=True)
class Document:
    """One text to learn from or to be asked. `parts` alternate: given, produced, given, produced...

    The text is their concatenation; the model learns mostly from the produced parts (those at odd places). What
    ends the document (end of text, or the end-of-turn token inside a chat) belongs to the last produced part for chats
    and is added by the packer for plain text.
    `keys` are the combinations that it contains, as `combination_key` writes them.
    """

    family: str
    parts: tuple[str, ...]
    keys: tuple[str, ...] = ()
    emphasis: float = 1.0  # how much a produced token counts in the loss

    @property
    def text(self) -> str:
        return "".join(self.parts)


@dataclass(frozen=True)
class Question:
    """A question in plain words with its short answer and a full sentence of it, for chats, traces and passages."""

    question: str
    answer: str
    sentence: str
    keys: tuple[str, ...] = ()


def combination_key(kind: str, *values: object) -> str:
    return "|".join((kind, *map(str, values)))


def is_held_out(key: str) -> bool:
    return hashlib.blake2b(key.encode(), digest_size=1).digest()[0] < HELD_OUT_OF_256


class Draw:
    """A source of seeded choices for one split; `held_out` asks for combinations that training never sees."""

    def __init__(self, seed: int | str, held_out: bool = False) -> None:
        self.random = random.Random(seed)
        self.held_out = held_out

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self.random.random() * len(items))]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different items in random order."""
        return self.random.sample(items, count)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def number(self, low: int, high: int) -> int:
        """An integer in [low, high], both included."""
        return low + int(self.random.random() * (high - low + 1))

    def allows(self, key: str) -> bool:
        """Whether a combination lies on this draw's side of the split."""
        return is_held_out(key) == self.held_out

    def combine(self, kind: str, *pools: Sequence[object], symmetric: bool = False) -> tuple[tuple[Any, ...], str]:
        """One item of each pool, drawn until the combination is on this draw's side, and its key.

        With `symmetric`, a+b and b+a are one combination. The pools must allow at least some dozens of combinations.
        """
        for _ in range(10_000):
            values = tuple(self.pick(pool) for pool in pools)
            key = combination_key(kind, *(sorted(values, key=str) if symmetric else values))
            if self.allows(key):
                return values, key
        raise ValueError(f"kind {kind!r}: no combination of its pools is on this side of the split")
