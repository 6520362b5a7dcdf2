"""Which tokens of a vocabulary an automaton of bytes can read in each of its states.

The tokens are a trie of their bytes, level by level, so that a common beginning is read once, for many states at once.
S states, N nodes of a level, V vocabulary, W words of a mask.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ramet.runtime.arrays import Ints

ENDED = -1  # the state of an output that has ended: nothing follows
NOWHERE = -2
AT_ONCE = 1 << 20  # flags of tokens: what is worked on stays in a cache

Indices = npt.NDArray[np.int64]


class TrieLevel(NamedTuple):
    """The nodes whose beginnings have one length."""

    parents: Indices  # [N] index of a node of the level before
    bytes: Indices  # [N]
    ends: Indices  # [E] nodes that spell a token, and
    tokens: Indices  # [E] which: several tokens may be spelled alike


class TokenTrie:
    def __init__(self, pieces: Sequence[tuple[int, bytes]], vocab_size: int) -> None:
        """Tokens and how each is spelled: no text is empty."""
        self._num_words = -(-vocab_size // 32)
        tokens = np.array([token for token, _ in pieces], np.int64)
        lengths = np.array([len(piece) for _, piece in pieces], np.int64)
        text = np.frombuffer(b"".join(piece for _, piece in pieces), np.uint8)
        starts = np.cumsum(lengths) - lengths
        self._levels: list[TrieLevel] = []
        rows, nodes = np.arange(len(pieces)), np.zeros(len(pieces), np.int64)
        for depth in range(int(lengths.max(initial=0))):
            longer = lengths[rows] > depth
            rows, nodes = rows[longer], nodes[longer]
            known, nodes = np.unique(nodes << 8 | text[starts[rows] + depth], return_inverse=True)
            ending = lengths[rows] == depth + 1
            self._levels.append(TrieLevel(known >> 8, known & 255, nodes[ending], tokens[rows[ending]]))

    def masks(self, table: Ints) -> Ints:
        """table [S, 256]: the state after each byte, ENDED or NOWHERE. [S, W] int32: the tokens that lead somewhere."""
        num = len(table)
        nowhere = NOWHERE % (num + 2)
        steps = np.full((num + 2, 256), nowhere, np.int32)
        steps[:num] = table % (num + 2)
        size = max(AT_ONCE // (32 * self._num_words), 1)
        parts = (np.arange(first, min(first + size, num), dtype=np.int32) for first in range(0, num, size))
        masks = [self._masks_of(states, steps.reshape(-1), nowhere) for states in parts]
        return np.concatenate(masks)

    def _masks_of(self, first: Ints, steps: Ints, nowhere: int) -> Ints:
        """Of the states `first` [C]. steps [(S + 2) * 256]. A node stays while any of the states can read it."""
        legal = np.zeros((len(first), 32 * self._num_words), np.bool_)
        states, places = first[:, None], np.zeros(1, np.int64)  # of the nodes that stay; node -> its place or -1
        for level in self._levels:
            above = places[level.parents]
            tried = np.flatnonzero(above >= 0)
            reached = steps.take((states.take(above[tried], 1) << 8) + level.bytes[tried].astype(np.int32))
            kept = np.flatnonzero((reached != nowhere).any(0))
            states, places = reached[:, kept], np.full(len(level.parents), -1)
            places[tried[kept]] = np.arange(len(kept))
            ends = places[level.ends]
            spelled = ends >= 0
            legal[:, level.tokens[spelled]] = states[:, ends[spelled]] != nowhere
        return np.packbits(legal, axis=1, bitorder="little").view(np.int32)
