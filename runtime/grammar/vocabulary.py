"""What a backend must know of the tokens: their bytes, which of them are control tokens, which end an output.

A control token is an added token of tokenizer.json, special or not: models are trained to begin calls and reasoning
with them. Its text may be spelled with other tokens; the token itself is legal only where a structural tag names it.
"""

from functools import cached_property

import numpy as np

from ramet.runtime.arrays import Ints
from ramet.runtime.errors import ConfigError
from ramet.runtime.grammar.base import Vocabulary


class Tokens:
    """A vocabulary's tokens, read once."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.size = vocabulary.size
        self.words = -(-vocabulary.size // 32)
        self.eos_ids = sorted(i for i in vocabulary.eos_ids if 0 <= i < vocabulary.size)
        if not self.eos_ids:
            raise ConfigError("constrained output needs an end-of-sequence token, and the model names none")

    @cached_property
    def control(self) -> dict[str, int]:
        """Text -> id of each control token."""
        return self.vocabulary.tokenizer.added_tokens

    @cached_property
    def texts(self) -> dict[int, bytes]:
        """The bytes of each token that is text."""
        tokenizer, never = self.vocabulary.tokenizer, {*self.control.values(), *self.eos_ids}
        pieces = {i: tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size) if i not in never}
        return {i: piece for i, piece in pieces.items() if piece}

    def mask_of(self, ids: list[int]) -> Ints:
        """[W] int32: 1 for each of `ids`."""
        bits = np.zeros(self.words * 32, np.uint8)
        bits[ids] = 1
        return np.packbits(bits, bitorder="little").view(np.int32)
