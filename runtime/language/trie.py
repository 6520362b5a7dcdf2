"""Which tokens of several texts are computed: those on the paths of their trie, each once.

Only the leaves are computed, in sorted order, each from where it leaves the one before:

    a b c        computed: a b c
    a b          read from the one above
    a d e        computed: d e
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

Ids = tuple[int, ...]


class TrieLeaf(NamedTuple):
    """A path that is computed from its token `start` on."""

    ids: Ids
    start: int


class Trie(NamedTuple):
    """`choices`: of each leaf the first choice that is read from it. `ways`: of each choice its leaf and its length."""

    leaves: list[TrieLeaf]
    choices: list[int]
    ways: list[tuple[int, int]]

    @classmethod
    def of(cls, each: Sequence[Ids], behind: Ids = ()) -> "Trie":
        """`behind`: what is computed after each leaf."""
        ordered = sorted(set(each))
        ends = [ids for ids, after in zip(ordered, [*ordered[1:], ()]) if after[: len(ids)] != ids]
        leaves = [TrieLeaf(ids + behind, num_common(before, ids)) for before, ids in zip([(), *ends], ends)]
        ways = [(bisect_left(ends, ids), len(ids)) for ids in each]  # the first that is not before it begins with it
        choices = [0] * len(leaves)
        for i, (leaf, _) in reversed(list(enumerate(ways))):
            choices[leaf] = i
        return cls(leaves, choices, ways)


def num_common(one: Ids, other: Ids) -> int:
    """How many tokens both begin with."""
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
