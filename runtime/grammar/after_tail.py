"""Constraints that begin inside a token: its first bytes end the prompt, what it has beyond them begins the output.

A grammar reads tokens, so what is beyond is spelled by other tokens, which have the same bytes: by one where there is
such a token, whose bit of the mask answers, else byte by byte. Thousands of tokens may begin with one tail (a space),
and programs ask for the same constraint after the same tail again and again: the answer is kept as long as the
constraint is. W words of a mask.
"""

from itertools import takewhile
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ramet.runtime.arrays import Ints
from ramet.runtime.grammar.base import Compiled, Grammar
from ramet.runtime.grammar.output import ConstrainedOutput
from ramet.runtime.text.token_bytes import Beyond, TokenBytes

Flags = npt.NDArray[np.bool_]
MAX_TAILS = 16  # that are kept of one constraint
KNOWN: "WeakKeyDictionary[Compiled, dict[bytes, Flags]]" = WeakKeyDictionary()


def may_begin(output: ConstrainedOutput, tail: bytes, table: TokenBytes, bits: Ints) -> Flags:
    """Whether `output`, which has no token yet, may begin with what each of `table.begin_with(tail)` has beyond it.

    bits [W] int32 are the mask of its first token. What no tokens of the vocabulary spell may not be.
    """
    if not output.active:
        thinks = {text: not text or output.thinks(text) for text in table.beyond(tail).texts}
        return np.fromiter((thinks[text] for text in table.beyond(tail).texts), np.bool_)
    known = KNOWN.setdefault(output.compiled, {})
    if tail not in known:
        if len(known) >= MAX_TAILS:
            known.clear()
        known[tail] = _read(output.grammar, table.beyond(tail), table, bits)
    return known[tail]


def _read(grammar: Grammar, beyond: Beyond, table: TokenBytes, bits: Ints) -> Flags:
    allowed = np.fromiter((not text for text in beyond.texts), np.bool_, len(beyond.texts))
    if grammar.must_end:
        return allowed
    whole = np.frombuffer(beyond.whole, np.int32)
    single = np.flatnonzero(whole >= 0)
    ids = whole[single]
    allowed[single] = bits.view(np.uint32)[ids >> 5] >> (ids & 31).astype(np.uint32) & 1
    walk = Walk(grammar.fork(), table)
    for i in np.flatnonzero((whole < 0) & ~allowed):
        allowed[i] = walk.reads(beyond.texts[i])
    return allowed


class Walk:
    """Reads texts from one state of a grammar. What two of them begin with is read once where they come in order."""

    def __init__(self, grammar: Grammar, table: TokenBytes) -> None:
        self._grammar, self._table = grammar, table
        self._taken: list[tuple[bytes, int]] = []  # parts of the last text and their tokens, which were accepted
        self._refused: bytes | None = None  # what no text may begin with

    def reads(self, text: bytes) -> bool:
        if self._refused is not None and text.startswith(self._refused):
            return False
        if (parts := self._table.parts(text)) is None:
            return False
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._taken, parts, strict=False)))
        self._grammar.rollback(len(self._taken) - same)
        del self._taken[same:]
        for part, token in parts[same:]:
            if not self._grammar.accept(token):
                self._refused = b"".join(each for each, _ in self._taken) + part
                return False
            self._taken.append((part, token))
        return True
