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
from ramet.runtime.grammar.base import CompiledConstraint, Grammar, TooComplex
from ramet.runtime.grammar.bounded import Bounded
from ramet.runtime.grammar.output import ConstrainedOutput
from ramet.runtime.text.healing import NEVER
from ramet.runtime.text.token_bytes import TokenBytes

Flags = npt.NDArray[np.bool_]
MAX_TAILS = 16  # that are kept of one constraint
MAX_ACCEPTED = 4096  # parts of texts that a step reads: 20 ms
REFUSED = 0.25  # what a part that is refused counts: it takes less
KNOWN: "WeakKeyDictionary[CompiledConstraint, dict[bytes, Flags]]" = WeakKeyDictionary()


def may_begin(output: ConstrainedOutput, tail: bytes, table: TokenBytes, bits: Ints) -> Flags | None:
    """Whether `output`, which has no token yet, may begin with what each of `table.begin_with(tail)` has beyond it.

    bits [W] int32 are the mask of its first token. What no tokens of the vocabulary spell may not be. None: the output
    is pending until that is known, and then is asked again. Raises TooComplex for what takes longer than a step may.
    """
    if not output.active:
        thinks = {text: not text or output.thinks(text) for text in table.beyond(tail).texts}
        return np.fromiter((thinks[text] for text in table.beyond(tail).texts), np.bool_)
    known = KNOWN.setdefault(output.compiled, {})
    if tail not in known:
        read = _read(output, tail, table, bits)
        if read is None:
            return None
        if len(known) >= MAX_TAILS:
            known.clear()
        known[tail] = read
    return known[tail]


def _read(output: ConstrainedOutput, tail: bytes, table: TokenBytes, bits: Ints) -> Flags | None:
    grammar, beyond = output.grammar, table.beyond(tail)
    allowed = np.fromiter((not text for text in beyond.texts), np.bool_, len(beyond.texts))
    if grammar.must_end:
        return allowed
    whole = np.frombuffer(beyond.whole, np.int32)
    single = np.flatnonzero(whole >= 0)
    ids = whole[single]
    allowed[single] = bits.view(np.uint32)[ids >> 5] >> (ids & 31).astype(np.uint32) & 1
    others = np.flatnonzero((whole < 0) & ~allowed)
    if output.aside is None:
        walk = TailWalk(grammar.fork(), table, MAX_ACCEPTED if isinstance(output.compiled, Bounded) else NEVER)
        for i in others:
            allowed[i] = walk.reads(beyond.texts[i])
        return allowed
    flags = output.aside.reads(tail, lambda: [table.parts(beyond.texts[i]) or [] for i in others])
    if flags is None:
        return None
    allowed[others] = np.frombuffer(flags, np.bool_)
    return allowed


class TailWalk:
    """Reads texts from one state of a grammar. What two of them begin with is read once where they come in order.

    Raises TooComplex where it takes more than `most` parts, of which those that are refused count a quarter.
    """

    def __init__(self, grammar: Grammar, table: TokenBytes, most: int = NEVER) -> None:
        self._grammar, self._table, self._most = grammar, table, most
        self._taken: list[tuple[bytes, int]] = []  # parts of the last text and their tokens, which were accepted
        self._refused: bytes | None = None  # what no text may begin with
        self._num_read = 0.0

    def reads(self, text: bytes) -> bool:
        if self._refused is not None and text.startswith(self._refused):
            return False
        if (parts := self._table.parts(text)) is None:
            return False
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._taken, parts, strict=False)))
        self._grammar.rollback(len(self._taken) - same)
        del self._taken[same:]
        for part, token in parts[same:]:
            if self._num_read >= self._most:
                raise TooComplex("takes too long to read at the end of the prompt")
            if not self._grammar.accept(token):
                self._num_read += REFUSED
                self._refused = b"".join(each for each, _ in self._taken) + part
                return False
            self._num_read += 1
            self._taken.append((part, token))
        return True
