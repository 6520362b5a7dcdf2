"""Compiled constraints whose outputs never take long in the scheduler's process.

Decides which outputs start in a process of their own, and which move there after tokens that took long (aside.py).
"""

from collections.abc import Sequence

from ramet.ipc.spec import ConstraintKind
from ramet.runtime.grammar.aside import AsideGrammar, Parsers
from ramet.runtime.grammar.base import BackendName, CompiledConstraint, Grammar, GrammarBackend, TooComplex

LONG_S = 0.02  # processor time beyond which a token is long, for a library that has no limits of its own
TOO_LONG_S = 0.2  # a token that takes this is enough for its output to move to a process
FORGOTTEN = 1_000  # tokens of a constraint, after which a long one counts no more: it may have been a collection


class Apart:
    """A constraint whose outputs may be parsed aside. Starts these outputs."""

    def __init__(self, parsers: Parsers, backend: BackendName, prepared: bytes) -> None:
        self._parsers, self.backend, self.prepared = parsers, backend, prepared

    def start(self, tokens: Sequence[int] = ()) -> AsideGrammar:
        return AsideGrammar(self._parsers, self.backend, self.prepared, tokens)


class Bounded:
    """A Compiled whose outputs start in this process if `inside` is given, and may move to a process of their own.

    `num_bytes`: of both. `measured`: its library has no limits, so an output moves after tokens that took long.
    """

    def __init__(self, inside: CompiledConstraint | None, apart: Apart, num_bytes: int, measured: bool = False) -> None:
        self._inside, self.apart, self.num_bytes, self._measured = inside, apart, num_bytes, measured
        self._num_short = FORGOTTEN  # tokens since the last long one

    def start(self) -> Grammar:
        return self.apart.start() if self._inside is None else self._inside.start()

    def took(self, seconds: float) -> bool:
        """Note the processor time of a token. True: its output must move, and later outputs start apart."""
        if not self._measured or seconds <= LONG_S:
            self._num_short += 1
            return False
        is_first = self._inside is not None and self._num_short >= FORGOTTEN
        self._num_short = 0
        if is_first and seconds <= TOO_LONG_S:
            return False
        self._inside = None
        return True


def bounded(
    backend: GrammarBackend, kind: ConstraintKind, prepared: bytes | memoryview, parsers: Parsers
) -> CompiledConstraint:
    """Load `prepared` so that no output takes long in this process."""
    data = bytes(prepared)
    try:
        inside = None if kind in backend.unbounded else backend.load(data)
    except TooComplex:
        inside = None
    num_bytes = 0 if inside is None else inside.num_bytes
    num_bytes = max(num_bytes, len(data)) if backend.reads_in_place else num_bytes + len(data)
    return Bounded(inside, Apart(parsers, backend.name, data), num_bytes, measured=not backend.counts_items)
