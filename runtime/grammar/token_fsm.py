"""A finite automaton whose transitions are tokens, in flat arrays: it is read where it lies, without building anything.

S states, T transitions, W words of a mask. State 0 is the first one.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable

import numpy as np

from ramet.runtime.arrays import Ints

ENDED = -1  # the state of an output that has ended: nothing follows
KEPT_MASKS = 64  # of the states that were asked for last


class TokenFsm:
    """`offsets` [S + 1]: the transitions of state s are [offsets[s], offsets[s + 1]).

    `tokens` [T] in ascending order for each state, `targets` [T] the state after each, ENDED among them.
    """

    def __init__(self, offsets: Ints, tokens: Ints, targets: Ints) -> None:
        self._offsets, self._tokens, self._targets = offsets, tokens, targets
        self._masks: OrderedDict[int, Ints] = OrderedDict()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> "TokenFsm":
        """Copies nothing."""
        values = np.frombuffer(data, np.int32)
        num_states = int(values[0])
        offsets, rest = values[1 : num_states + 2], values[num_states + 2 :]
        return cls(offsets, *np.split(rest, 2))

    def to_bytes(self) -> bytes:
        num_states = np.array([len(self._offsets) - 1], np.int32)
        return np.concatenate([num_states, self._offsets, self._tokens, self._targets]).tobytes()

    @property
    def num_bytes(self) -> int:
        """Memory that it takes, with the masks that it keeps for a vocabulary of all its tokens."""
        mask = int(self._tokens.max(initial=0)) // 8
        return self._offsets.nbytes + self._tokens.nbytes + self._targets.nbytes + KEPT_MASKS * mask

    def tokens(self, state: int) -> Ints:
        """Those that may come next."""
        if state == ENDED:
            return self._tokens[:0]
        return self._tokens[self._offsets[state] : self._offsets[state + 1]]

    def step(self, state: int, token: int) -> int | None:
        """None: `token` is not legal here."""
        tokens = self.tokens(state)
        at = int(np.searchsorted(tokens, np.int32(token)))  # of their type: another one would copy them all
        if at == len(tokens) or tokens[at] != token:
            return None
        return int(self._targets[self._offsets[state] + at])

    def mask(self, state: int, num_words: int) -> Ints:
        """[W] int32, not to be written."""
        mask = self._masks.pop(state, None)
        if mask is None:
            bits = np.zeros(32 * num_words, np.bool_)
            bits[self.tokens(state)] = True
            mask = np.packbits(bits, bitorder="little").view(np.int32)
        self._masks[state] = mask
        if len(self._masks) > KEPT_MASKS:
            self._masks.popitem(last=False)
        return mask


def explore(first: int, moves: Callable[[int], tuple[Ints, Ints]], ends: Iterable[int]) -> TokenFsm:
    """The automaton of the states that `first` leads to. `moves`: the tokens of a state, and the state after each.

    What follows a state of `ends` is left out.
    """
    numbers, states = {first: 0, **dict.fromkeys(ends, ENDED)}, [first]
    tokens, targets = list[Ints](), list[Ints]()
    for state in states:  # grows meanwhile
        legal, reached = moves(state)
        after = np.zeros(int(legal.max(initial=-1)) + 1, np.int32)  # token -> state
        after[legal] = reached
        tokens.append(np.sort(legal))
        reached = after[tokens[-1]]
        different = np.unique(reached)
        for each in different.tolist():
            if each not in numbers:
                numbers[each] = len(states)
                states.append(each)
        renumbered = np.array([numbers[each] for each in different.tolist()], np.int32)
        targets.append(renumbered[np.searchsorted(different, reached)])
    offsets = np.cumsum([0, *map(len, tokens)]).astype(np.int32)
    return TokenFsm(offsets, np.concatenate(tokens), np.concatenate(targets))
