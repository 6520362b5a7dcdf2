"""Forced text becomes tokens: it is tokenised anew together with the last tokens before it.

By itself it would not be spelled as the model has learned to: `na` and forced `me": ` give the tokens `na`, `me`, where
every text has `name`. So the last tokens may be taken back, which is how the SGLang paper's compressed finite state
machine jumps forward. Pure: knows no grammar and no request.
"""

import codecs
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from ramet.runtime.grammar.vocabulary import control_tokens
from ramet.runtime.text.tokenizer import Tokenizer

# Of 1,500 texts that were cut anywhere, and whose rest was forced, all came out in their canonical tokenisation for the
# bundled tokenizer, a byte-level and two SentencePiece-style ones of 4,000 entries; 99.8 % for one that cuts digits in
# groups of three. With 4 tokens 95 to 100 % did, without any 0 to 55 %. At most 5 tokens were taken back, 0.5 to 1.6
# on average.
RETOKENIZE_WINDOW = 8
# Text that may stand in front, so that what a tokenizer puts at the start of each text is not taken for what follows.
CONTEXTS = ("", "\n", "a")


class Retokenized(NamedTuple):
    num_dropped: int  # of the window's tokens, from its end
    tokens: list[int]  # what follows those that are kept


NOTHING = Retokenized(0, [])


def retokenize(tokenizer: Tokenizer, window: Sequence[int], forced: bytes) -> Retokenized:
    """What is kept of `window` and the new tokens spell it and all whole characters of `forced`, or nothing is new.

    `window`: the output's last tokens, all of them or RETOKENIZE_WINDOW.
    """
    speller = _speller(tokenizer)
    pieces = [speller.text_of(token) for token in window]
    begin = max((index + 1 for index, piece in enumerate(pieces) if not piece), default=0)
    fresh = begin > 0 or len(window) < RETOKENIZE_WINDOW  # nothing before it is part of the same text
    found = NOTHING
    for start in range(begin, len(window) + 1):
        tokens = speller.extended(b"".join(pieces[start:]), forced)
        if tokens is None:
            continue
        kept = _common(window[start:], tokens)
        found = Retokenized(len(window) - start - kept, tokens[kept:])
        if kept or (start == begin and fresh):  # else `start` may be inside of what is one word to the tokenizer
            break
    return found


def can_retokenize(tokenizer: Tokenizer) -> bool:
    """Its tokens have a text of their own each, and it gives a text back as it was."""
    return tokenizer.pieces is not None and _speller(tokenizer).spell("A b") is not None


class _Speller:
    """The tokens of a text inside an output, none of them a control token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        control = control_tokens(tokenizer)
        self._never = frozenset(control.values()) | tokenizer.eos_ids
        self._written = re.compile("|".join(map(re.escape, sorted(control, key=len, reverse=True))) or "(?!)")
        self._contexts = [(text, tokenizer.encode(text, add_special_tokens=False)) for text in CONTEXTS]

    def text_of(self, token: int) -> bytes:
        """Empty for a token that is no text."""
        return b"" if token in self._never else self._tokenizer.token_bytes(token) or b""

    def extended(self, before: bytes, forced: bytes) -> list[int] | None:
        """The tokens of `before` and the whole characters of `forced`; None: there are none, or nothing spells them."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            text = decoder.decode(before + forced)
        except UnicodeDecodeError:
            return None
        return self.spell(text) if len(text.encode()) > len(before) else None

    def spell(self, text: str) -> list[int] | None:
        """None: no tokens spell it as it is."""
        tokens: list[int] = []
        cuts = [match.start() + 1 for match in self._written.finditer(text)]  # no part has a whole control token's text
        for begin, end in pairwise([0, *cuts, len(text)]):
            found = self._spell_part(text[begin:end])
            if found is None:
                return None
            tokens += found
        return tokens

    def _spell_part(self, text: str) -> list[int] | None:
        for context, before in self._contexts:
            tokens = self._tokenizer.encode(context + text, add_special_tokens=False)
            found = tokens[len(before) :]
            if tokens[: len(before)] == before and b"".join(map(self.text_of, found)) == text.encode():
                return found
        return None


@lru_cache(maxsize=2)  # a process has one tokenizer
def _speller(tokenizer: Tokenizer) -> _Speller:
    return _Speller(tokenizer)


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(first, second)) if a != b), min(len(first), len(second)))
