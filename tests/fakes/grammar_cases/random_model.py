"""A model without weights: random logits over a real vocabulary, leaning to what ends an output.

It is played on a Grammar alone, and checks at every token what the contract of a Grammar says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from grammar_cases.case import Case
from ramet.ipc.spec import ConstraintKind
from ramet.runtime.arrays import Ints
from ramet.runtime.grammar.base import Grammar, Vocabulary

CLOSERS = b'"]}'  # end values of JSON; in a regex or grammar they are characters like others, and end nothing
OPENERS = b"{["
MAX_PART = 16  # bytes of a text that are looked for among the tokens
MAX_COMPLETION = 500  # tokens
ATTEMPTS = 12


@dataclass(frozen=True, slots=True)
class Output:
    tokens: list[int]
    data: bytes
    ended: bool

    @property
    def text(self) -> str:
        return self.data.decode()


class RandomModel:
    def __init__(self, vocabulary: Vocabulary) -> None:
        tokenizer = vocabulary.tokenizer
        self.vocabulary = vocabulary
        self._eos = sorted(vocabulary.eos_ids)
        self.pieces = [tokenizer.token_bytes(token) or b"" for token in range(vocabulary.size)]
        never = tokenizer.special_ids | vocabulary.eos_ids
        self._texts = np.array([bool(piece) and i not in never for i, piece in enumerate(self.pieces)])
        self._ending = np.zeros(vocabulary.size, bool)
        self._ending[self._eos] = True
        closing = np.array([bool(piece.strip()) and not piece.strip(b" " + CLOSERS) for piece in self.pieces])
        self._ending_json = self._ending | closing
        self._opening = np.array([bool(set(piece) & set(OPENERS)) for piece in self.pieces])
        self._null = np.array([bool(piece) and piece in b" null" for piece in self.pieces])
        self._never = ~self._texts
        self._never[self._eos] = False
        self._of_byte = {piece[0]: token for token, piece in enumerate(self.pieces) if len(piece) == 1}
        self._words = -(-vocabulary.size // 32)

    def leaning(self, case: Case, *more: str) -> np.ndarray:
        """[V]: 1 for what ends, in JSON closing brackets and quotes too, and for the parts of the texts."""
        found = (text.encode() for text in (case.shortest, *more))
        parts = {data[i:j] for data in found for i in range(len(data)) for j in range(i + 1, i + MAX_PART + 1)}
        towards = np.array([piece in parts for piece in self.pieces])
        ending = self._ending_json if case.constraint.kind is ConstraintKind.JSON_SCHEMA else self._ending
        return (towards | ending).astype(np.float64)

    def legal(self, grammar: Grammar) -> np.ndarray:
        """The tokens of the mask. Raises AssertionError where it disagrees with the rest of the contract."""
        bits: Ints = np.zeros(self._words, np.int32)
        grammar.fill_mask(bits)
        flags = np.unpackbits(bits.view(np.uint8), bitorder="little").astype(bool)
        assert not flags[self.vocabulary.size :].any(), "a token beyond the vocabulary is legal"
        flags = flags[: self.vocabulary.size]
        assert not (flags & self._never).any(), "a token that is no text is legal"
        assert all(flags[eos] == grammar.may_end for eos in self._eos), f"the end is legal and {grammar.may_end=}"
        found: np.ndarray = np.flatnonzero(flags)
        assert len(found), "nothing is legal"
        if forced := grammar.forced():
            assert list(found) == forced[:1], f"{forced} is forced and {found[:8]} are legal"
        if grammar.must_end:
            assert set(found) == set(self._eos), f"must end, and {found[:8]} are legal"
        return found

    def play(self, grammar: Grammar, case: Case, seed: int, lean: float) -> Output:
        """An output within the case's budget. `lean`: how many nats more what ends an output has."""
        noise = np.random.default_rng(seed)
        bias, tokens = lean * self.leaning(case), list[int]()
        max_new_tokens = case.max_new_tokens(self.vocabulary.tokenizer)
        while len(tokens) < max_new_tokens:
            token = self._single(grammar, bias, noise)
            if token in self._eos:
                return Output(tokens, self._joined(tokens), ended=True)
            tokens.append(token)
        return Output(tokens, self._joined(tokens), ended=False)

    def takes(self, grammar: Grammar, text: str) -> bool:
        """Whether a whole text is accepted, byte by byte."""
        return all(grammar.accept(self._of_byte[byte]) for byte in text.encode()) and grammar.may_end

    def completed(self, grammar: Grammar, output: Output, case: Case, seed: int) -> bytes | None:
        """The output with more tokens after it, up to where it may end; None where no attempt came to an end."""
        leaning = self.leaning(case, *case.hints)
        biases = (
            9.0 * leaning,
            np.where(self._opening, -9.0, np.where(self._null, 9.0, 9.0 * leaning)),  # for what nests in itself
            3.0 * leaning,  # for numbers: more digits than those of the shortest
        )
        for attempt in range(ATTEMPTS):
            noise, other = np.random.default_rng([seed, attempt]), grammar.fork()
            tokens = list(output.tokens)
            while len(tokens) < len(output.tokens) + MAX_COMPLETION and not other.may_end:
                tokens += self._hinted(other, case.hints, noise) or [self._single(other, biases[attempt % 3], noise)]
            if other.may_end:
                return self._joined(tokens)
        return None

    def _hinted(self, grammar: Grammar, hints: Sequence[str], noise: np.random.Generator) -> list[int]:
        """The tokens of a hint, or of some end of it, that the grammar took."""
        if not hints or noise.random() < 0.5:
            return []
        hint = hints[noise.integers(len(hints))]
        start = noise.integers(len(hint)) if noise.random() < 0.5 else 0
        taken = []
        for byte in hint[start:].encode():
            token = self._of_byte[byte]
            if grammar.may_end or not grammar.accept(token):
                break
            taken.append(token)
        return taken

    def _single(self, grammar: Grammar, bias: np.ndarray, noise: np.random.Generator) -> int:
        token = self._drawn(self.legal(grammar), bias, noise)
        assert grammar.accept(token), f"{self.pieces[token]!r} is legal and is not accepted"
        return token

    def _drawn(self, legal: np.ndarray, bias: np.ndarray, noise: np.random.Generator) -> int:
        return int(legal[np.argmax(bias[legal] + noise.gumbel(size=len(legal)))])

    def _joined(self, tokens: list[int]) -> bytes:
        return b"".join(self.pieces[token] for token in tokens)


def lean_of(seed: int) -> float:
    """Some outputs wander, most come to their end."""
    return Random(seed).choice((4.0, 7.0, 9.0, 9.0))
