"""A short text that a constraint allows, found in its own masks: an example of it.

A beam search over draws; text without a choice costs nothing. What closes something is tried first, then what is short.
"""

from dataclasses import dataclass

import numpy as np

from ramet.runtime.arrays import Ints
from ramet.runtime.grammar.base import Compiled, Grammar
from ramet.runtime.grammar.vocabulary import Tokens

MAX_DRAWS = 400
WIDTH = 8  # outputs that are gone on with
CANDIDATES = 12  # tokens that are tried after each of them
CLOSING = b'"}]'


@dataclass(frozen=True, slots=True)
class _Output:
    text: bytes
    num_free: int  # bytes that were a choice
    grammar: Grammar


def shortest_text(compiled: Compiled, tokens: Tokens) -> str | None:
    """Not always the shortest one. None: none was found."""
    order = _preferred(tokens)
    beam = [_forced(_Output(b"", 0, compiled.start()), tokens)]
    for _ in range(MAX_DRAWS):
        if ended := [output.text for output in beam if output.grammar.may_end]:
            return min(ended, key=len).decode()
        following = {each.text: each for output in beam for each in _next(output, tokens, order)}
        beam = sorted(following.values(), key=lambda output: output.num_free)[:WIDTH]  # stable: the preferred ones stay
    return None


def _preferred(tokens: Tokens) -> Ints:
    """All tokens but those that end an output, in the order in which they are tried."""
    texts = sorted(tokens.texts, key=lambda token: plainness(tokens.texts[token]))
    control = sorted(set(tokens.control.values()).difference(tokens.eos_ids))
    return np.array([*texts, *control], dtype=np.int32)


def plainness(piece: bytes) -> tuple[int, int, bytes]:
    """Orders the texts of tokens: short ones first, of one length those that close something."""
    kinds = piece in CLOSING, piece.islower(), piece.isalnum(), piece.isascii() and not piece.isspace(), True
    return len(piece), kinds.index(True), piece


def _next(output: _Output, tokens: Tokens, order: Ints) -> list[_Output]:
    bits = np.zeros(tokens.words, np.int32)
    output.grammar.fill_mask(bits)
    legal = np.unpackbits(bits.view(np.uint8), bitorder="little")
    found = []
    for token in order[legal[order] != 0][:CANDIDATES].tolist():
        grammar, piece = output.grammar.fork(), _piece(tokens, token)
        if grammar.accept(token):
            drawn = _Output(output.text + piece, output.num_free + len(piece), grammar)
            found.append(_forced(drawn, tokens))
    return found


def _forced(output: _Output, tokens: Tokens) -> _Output:
    """With the tokens that must follow. WRITES its grammar."""
    text = output.text
    while ids := output.grammar.forced():
        for token in ids:
            assert output.grammar.accept(token), f"the forced token {token} is not legal"
            text += _piece(tokens, token)
    return _Output(text, output.num_free, output.grammar)


def _piece(tokens: Tokens, token: int) -> bytes:
    return tokens.vocabulary.tokenizer.token_bytes(token) or b""
