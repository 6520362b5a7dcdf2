"""What a constraint makes of one text: whether it is legal, what of it is forced, how many tokens a model draws for it.

The model is an oracle that wants this text: it draws the tokens of the canonical tokenisation, or the rest of one where
forced text has ended inside it. Knows no request and no scheduler.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from ramet.runtime.grammar.base import Grammar
from ramet.runtime.grammar.compiled import Loaded
from ramet.runtime.grammar.ending import EndTokens
from ramet.runtime.grammar.jump import Retokenizer
from ramet.runtime.grammar.output import ConstrainedOutput, IllegalToken, JumpMode
from ramet.runtime.grammar.vocabulary import TokenTable

MAX_EXPECTED = 8  # tokens that are named where a text is refused
CLOSING = b'"}]'


class TrialOracle:
    """Draws a text token by token."""

    def __init__(self, tokens: TokenTable, text: str) -> None:
        tokenizer = tokens.vocabulary.tokenizer
        self.text = text.encode()
        self.canonical = tokenizer.encode(text, add_special_tokens=False)
        pieces = (tokenizer.token_bytes(token) or b"" for token in self.canonical)
        self._starts = list(accumulate(map(len, pieces), initial=0))
        self._spelled = {piece: token for token, piece in reversed(tokens.texts.items())}

    def choices(self, done: int) -> Iterator[int]:
        """What it draws after `done` bytes of the text; a later one where the constraint forbids the first."""
        index = bisect_right(self._starts, done) - 1
        if self._starts[index] == done and index < len(self.canonical):
            yield self.canonical[index]
        end = self._starts[index + 1] if index < len(self.canonical) else len(self.text)
        for stop in range(end, done, -1):
            if (token := self._spelled.get(self.text[done:stop])) is not None:
                yield token


@dataclass(frozen=True, slots=True)
class TrialRefusal:
    """Where a text leaves its constraint."""

    num_bytes: int  # of the text that are legal; all of them where more must follow
    expected: tuple[bytes, ...]  # some of what may follow
    num_more: int  # tokens that may follow as well
    may_end: bool  # the text may end there


@dataclass(frozen=True, slots=True)
class Trial:
    num_draws: int  # model steps, that of the end included unless the constraint forces it
    forced: tuple[tuple[int, int], ...]  # [begin, end) in bytes: what was appended without a draw
    refusal: TrialRefusal | None = None


def draw(loaded: Loaded, tokens: TokenTable, oracle: TrialOracle, mode: JumpMode) -> Trial:
    """The oracle's text as an output under the constraint."""
    drawing = _Drawing(loaded, tokens, mode)
    forced: list[tuple[int, int]] = []
    num_draws = 0
    while True:
        begin = len(drawing.text)
        drawing.jump()
        done, grammar = len(drawing.text), drawing.output.grammar
        if done > begin:
            forced.append((begin, done))
        if drawing.output.ended:
            return Trial(num_draws, tuple(forced))
        if done == len(oracle.text) and grammar.may_end:
            return Trial(num_draws + 1, tuple(forced))
        if not any(map(drawing.accept, oracle.choices(done))):
            return Trial(num_draws, tuple(forced), TrialRefusal(done, *_expected(grammar, tokens), grammar.may_end))
        num_draws += 1


class _Drawing:
    """One output."""

    def __init__(self, loaded: Loaded, tokens: TokenTable, mode: JumpMode) -> None:
        self._tokenizer = tokens.vocabulary.tokenizer
        retokenizer = Retokenizer(self._tokenizer) if mode is JumpMode.RETOKENIZE else None
        eos = np.array(tokens.eos_ids, dtype=np.int32)
        ending = EndTokens(eos, eos, ignore_eos=False, min_new=0)
        self.output = ConstrainedOutput(
            loaded.compiled, loaded.backend, self._tokenizer, ending, mode, retokenizer=retokenizer, fsm=loaded.fsm
        )
        self._ids: list[int] = []

    @property
    def text(self) -> bytes:
        return b"".join(self._tokenizer.token_bytes(token) or b"" for token in self._ids)

    def accept(self, token: int) -> bool:
        try:
            self.output.accept(token)
        except IllegalToken:
            return False
        if not self.output.ended:
            self._ids.append(token)
        return True

    def jump(self) -> None:
        """Append what needs no draw."""
        while (jump := self.output.next_jump(np.array(self._ids, dtype=np.int32))) is not None:
            self.output.drop(jump.num_dropped)
            del self._ids[len(self._ids) - jump.num_dropped :]
            for token in jump.tokens:
                assert self.accept(token), f"token {token} of a jump is not legal"


def _expected(grammar: Grammar, tokens: TokenTable) -> tuple[tuple[bytes, ...], int]:
    """Some of what may follow, and the number of the other tokens."""
    if forced := grammar.forced_text():
        return (forced,), 0
    bits = np.zeros(tokens.words, np.int32)
    grammar.fill_mask(bits)
    legal = np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist()
    pieces = [tokens.vocabulary.tokenizer.token_bytes(token) or b"" for token in legal if token not in tokens.eos_ids]
    named = sorted(pieces, key=_plainness)[:MAX_EXPECTED]
    return tuple(named), len(pieces) - len(named)


def _plainness(piece: bytes) -> tuple[int, int, bytes]:
    """Orders the texts of tokens: short ones first, of one length those that close something."""
    kinds = piece in CLOSING, piece.islower(), piece.isalnum(), piece.isascii() and not piece.isspace(), True
    return len(piece), kinds.index(True), piece
