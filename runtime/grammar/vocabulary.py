"""What a backend must know of the tokens: their bytes, which of them are control tokens, which end an output.

A control token is a special one, or an added one that is written like a tag: models begin calls and reasoning with
them. Its text may be spelled with other tokens; the token itself is legal only where a structural tag names it.
"""

import json
from functools import cached_property

import numpy as np

from ramet.runtime.arrays import Ints
from ramet.runtime.errors import ConfigError
from ramet.runtime.grammar.base import GrammarError, Vocabulary
from ramet.runtime.text.tokenizer import Tokenizer

UNSEEN = "\U0010ffff"  # no character


def is_tag(text: str) -> bool:
    return len(text) > 2 and (text[0], text[-1]) in (("<", ">"), ("[", "]"))


def control_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """Text -> id of each."""
    return {t: i for t, i in tokenizer.added_tokens.items() if i in tokenizer.special_ids or is_tag(t)}


class TokenTable:
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
        return control_tokens(self.vocabulary.tokenizer)

    def named(self, text: str, place: str = "") -> int:
        """The control token that a constraint names. Raises GrammarError for one that ends an output."""
        if (token := self.control[text]) in self.eos_ids:
            fact = f"names {text}{place}, which ends an output and cannot stand in one"
            raise GrammarError(fact, hint="leave it out: an output ends where its constraint is fulfilled")
        return token

    @cached_property
    def texts(self) -> dict[int, bytes]:
        """The bytes of each token that is text."""
        tokenizer, never = self.vocabulary.tokenizer, {*self.control.values(), *self.eos_ids}
        pieces = {i: tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size) if i not in never}
        return {i: piece for i, piece in pieces.items() if piece}

    @cached_property
    def end_mask(self) -> Ints:
        """[W] of the tokens that end an output."""
        return self.mask_of(self.eos_ids)

    def plain_tokenizer(self) -> str:
        """tokenizer.json in which no text is a control token, for libraries that would find one in a forced text.

        Control tokens keep their ids under names that no text has. Other added tokens are ordinary ones.
        """
        content = json.loads((self.vocabulary.folder / "tokenizer.json").read_bytes())
        hidden = {text: f"{UNSEEN}{token}{UNSEEN}" for text, token in self.control.items()}
        content["added_tokens"] = [
            entry | {"content": hidden[entry["content"]], "special": True}
            for entry in content["added_tokens"]
            if entry["content"] in hidden
        ]
        vocab = content["model"]["vocab"]
        if isinstance(vocab, dict):
            content["model"]["vocab"] = {hidden.get(piece, piece): token for piece, token in vocab.items()}
        else:
            content["model"]["vocab"] = [[hidden.get(piece, piece), score] for piece, score in vocab]
        return json.dumps(content)

    def mask_of(self, ids: list[int]) -> Ints:
        """[W] int32: 1 for each of `ids`."""
        bits = np.zeros(self.words * 32, np.uint8)
        bits[ids] = 1
        return np.packbits(bits, bitorder="little").view(np.int32)
