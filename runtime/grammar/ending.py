"""Which tokens end a constrained output, and what they do to its masks: bit i of a mask allows token i."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ramet.runtime.arrays import Ints

Words = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class EndTokens:
    """Which tokens end an output, and when they may.

    Inside a constraint an end-of-sequence token is legal where the constraint is fulfilled. Where nothing else may
    follow it ends the output, whatever min_new_tokens and ignore_eos say: there is nothing left to generate.
    """

    eos_ids: Ints
    stop_ids: Ints  # those of min_new_tokens: eos (unless it is ignored) and the request's own
    ignore_eos: bool
    min_new: int

    def forbidden(self, num_output: int) -> Ints:
        """Those that must not be drawn after `num_output` tokens although the constraint is fulfilled."""
        if num_output < self.min_new:
            return self.stop_ids
        return self.eos_ids if self.ignore_eos else self.eos_ids[:0]

    def mask_before_constraint(self, words: Words, num_output: int) -> None:
        """WRITES words [W] uint32: everything may be drawn but an end."""
        words[:] = 0xFFFFFFFF
        _forbid(words, _known(words, self.stop_ids if num_output < self.min_new else self.eos_ids))

    def mask(self, words: Words, num_output: int) -> None:
        """WRITES words [W] uint32, which allow what a constraint does: without the ends that must not be drawn."""
        if len(forbidden := self.forbidden(num_output)):
            known = _known(words, forbidden)
            legal = known[words[known >> 5] & _bits(known) != 0]
            _forbid(words, legal)
            if not words.any():  # a stop token is all that the constraint leaves: it wins
                _allow(words, legal)


def allow_only(words: Words, ids: Ints) -> None:
    """WRITES words [W] uint32: nothing but `ids` may be drawn."""
    words[:] = 0
    _allow(words, ids)


def _known(words: Words, ids: Ints) -> Ints:
    """Those that have a bit: a tokenizer may name ends that the model has no logit for."""
    return ids[ids < 32 * len(words)]


def _bits(ids: Ints) -> Words:
    return np.left_shift(np.uint32(1), (ids & 31).astype(np.uint32))


def _forbid(words: Words, ids: Ints) -> None:
    np.bitwise_and.at(words, ids >> 5, ~_bits(ids))


def _allow(words: Words, ids: Ints) -> None:
    np.bitwise_or.at(words, ids >> 5, _bits(ids))
