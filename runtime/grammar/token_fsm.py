"""A finite automaton of bytes with the tokens that each of its states allows, in flat arrays: it is read where it lies.

S states, W words of a mask. State 0 is the first one.
"""

import numpy as np

from ramet.runtime.arrays import Ints
from ramet.runtime.grammar.base import MAX_FORCED_BYTES
from ramet.runtime.grammar.token_trie import ENDED, NOWHERE


class TokenFsm:
    """`table` [S, 256] int32: the state after each byte, ENDED or NOWHERE. `masks` [S, W] int32."""

    def __init__(self, table: Ints, masks: Ints) -> None:
        self._table, self._masks = table, masks
        self._nothing = np.zeros_like(masks[0])

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> "TokenFsm":
        """Copies nothing."""
        values = np.frombuffer(data, np.int32)
        num_states = int(values[0])
        table, masks = np.split(values[1:], [256 * num_states])
        return cls(table.reshape(num_states, 256), masks.reshape(num_states, -1))

    def to_bytes(self) -> bytes:
        num_states = np.array([len(self._table)], np.int32)
        return np.concatenate([num_states, self._table.reshape(-1), self._masks.reshape(-1)]).tobytes()

    @property
    def num_bytes(self) -> int:
        return self._table.nbytes + self._masks.nbytes

    def mask(self, state: int) -> Ints:
        """[W] int32, not to be written: the tokens that may come next."""
        mask: Ints = self._nothing if state == ENDED else self._masks[state]
        return mask

    def allows(self, state: int, token: int) -> bool:
        words = self.mask(state)
        return 0 <= token < 32 * len(words) and bool(words[token >> 5] >> (token & 31) & 1)

    def step(self, state: int, text: bytes) -> int:
        """The state after `text`."""
        for byte in text:
            state = int(self._table[state, byte]) if state >= 0 else NOWHERE
        return state

    def forced(self, state: int) -> bytes:
        """What follows whatever is chosen: up to MAX_FORCED_BYTES, a choice of bytes, or the end."""
        text = bytearray()
        while state >= 0 and len(text) < min(len(self._table), MAX_FORCED_BYTES):
            row = self._table[state]
            after = np.flatnonzero(row != NOWHERE).tolist()
            if len(after) != 1 or row[after[0]] == ENDED:
                break
            text.append(after[0])
            state = int(row[after[0]])
        return bytes(text)
