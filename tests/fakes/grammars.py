"""Constraints compiled on the spot, or when a test says so, by the real backends."""

from msgspec.structs import replace

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.config import BUNDLED_MODEL
from ramet.runtime.grammar.aside import Parsers
from ramet.runtime.grammar.backends import build
from ramet.runtime.grammar.base import GrammarBackend, GrammarError, Vocabulary
from ramet.runtime.grammar.bounded import bounded
from ramet.runtime.grammar.byte_fsm import build_byte_fsm
from ramet.runtime.grammar.compile import Compiling
from ramet.runtime.grammar.compiled import Failed, Loaded
from ramet.runtime.text.tokenizer import Tokenizer


class Grammars:
    """`held`: nothing is compiled until `release`. `parsers`: they parse outputs that take more than `step_items`."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        eos_ids: frozenset[int],
        held: bool = False,
        parsers: Parsers | None = None,
        step_items: int | None = None,
    ) -> None:
        self._vocabulary = Vocabulary(tokenizer, BUNDLED_MODEL, tokenizer.vocab_size, eos_ids)
        self._backends: dict[str, GrammarBackend] = {}
        self._done: dict[Constraint, Loaded | Failed] = {}
        self.compiling: dict[Constraint, Compiling] = {}
        self._compiled: list[Compiling] = []
        self.num_requests = self.num_bytes = 0
        self.owners: list[str] = []  # who asked for a constraint
        self.held, self.closed = held, False
        self.parsers, self._step_items = parsers, step_items

    def get(self, constraint: Constraint, owner: str = "") -> Loaded | Failed | Compiling:
        self.owners.append(owner)
        self.num_requests += 1
        key = replace(constraint, place="", after="", opens="")
        if self.held:
            compiling = self.compiling.setdefault(key, Compiling())
            compiling.num_requests += 1
            return compiling
        if key not in self._done:
            self._done[key] = self._compile(key)
        found = self._done[key]
        self.num_requests -= isinstance(found, Failed)
        return found

    def leave(self, constraint: Constraint) -> None:
        self.num_requests -= 1

    def give_up(self, constraint: Constraint, compiling: Compiling) -> None:
        compiling.num_requests -= 1
        self.num_requests -= 1

    def has_room(self, owner: str) -> bool:
        return True

    def release(self, failed: Failed | None = None, most: int | None = None) -> None:
        """All that was held, or the first `most`, is compiled or has failed. A scheduler must be told: Wake."""
        for key in list(self.compiling)[:most]:
            self._compiled.append(compiling := self.compiling.pop(key))
            compiling.outcome = failed or self._compile(key)
            self.num_requests -= compiling.num_requests if isinstance(compiling.outcome, Failed) else 0

    def take_compiled(self) -> list[Compiling]:
        compiled, self._compiled = self._compiled, []
        return compiled

    def close(self) -> None:
        self.closed = True

    def _compile(self, constraint: Constraint) -> Loaded | Failed:
        name = constraint.backend
        if name not in self._backends:
            self._backends[name] = build(name, self._vocabulary, self._step_items)
        backend = self._backends[name]
        try:
            fsm = build_byte_fsm(constraint.text) if constraint.kind is ConstraintKind.REGEX else None
            prepared = backend.prepare(constraint, constraint.whitespace)
            if self.parsers is None:
                return Loaded(backend.load(prepared), backend, fsm)
            return Loaded(bounded(backend, constraint.kind, prepared, self.parsers), backend, fsm)
        except GrammarError as error:
            return Failed(error.fact, error.hint)
