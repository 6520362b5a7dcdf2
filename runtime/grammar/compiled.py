"""What becomes of a constraint that is compiled, and an LRU of outcomes that is bounded by bytes."""

from collections import OrderedDict
from dataclasses import dataclass

from ramet.ipc.spec import Constraint
from ramet.runtime.grammar.base import CompiledConstraint, GrammarBackend
from ramet.runtime.grammar.byte_fsm import ByteFsm
from ramet.runtime.grammar.in_use import InUse

REFUSAL_BYTES = 1 << 12  # what a remembered refusal counts


@dataclass(frozen=True, slots=True)
class Loaded:
    """A constraint that is ready, and the library that fills its masks."""

    compiled: CompiledConstraint
    backend: GrammarBackend
    fsm: ByteFsm | None = None  # of a regular expression, where jumps ask for it


@dataclass(frozen=True, slots=True)
class Failed:
    """Why there is none. `status` is that of the requests: 400, 504 at the timeout, 503 where the machine was too
    busy or somebody kills workers, 500 where it is our fault.
    """

    fact: str
    hint: str = ""
    status: int = 400


class GrammarCache:
    """Constraint -> what became of it; the least recently used go when `max_bytes` are passed."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self.num_bytes = max_bytes, 0
        self._entries: OrderedDict[Constraint, Loaded | Failed] = OrderedDict()

    def get(self, key: Constraint) -> Loaded | Failed | None:
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: Constraint, value: Loaded | Failed) -> None:
        """The newest one stays, whatever its size: somebody waits for it."""
        if key in self._entries:
            self.num_bytes -= size_of(key, self._entries.pop(key))
        self._entries[key] = value
        self.num_bytes += size_of(key, value)
        while self.num_bytes > self._max_bytes and len(self._entries) > 1:
            self.num_bytes -= size_of(*self._entries.popitem(last=False))

    def shrink(self, max_bytes: int, in_use: InUse[Loaded]) -> None:
        """Forget those that no request has, until all take at most so many bytes."""
        if in_use.num_bytes + self.num_bytes <= max_bytes:
            return
        kept = [(key, size_of(key, value)) for key, value in self._entries.items() if key not in in_use]
        over = in_use.num_bytes + sum(size for _, size in kept) - max_bytes
        for key, size in kept:
            if over <= 0:
                return
            del self._entries[key]
            self.num_bytes, over = self.num_bytes - size, over - size


def size_of(key: Constraint, value: Loaded | Failed) -> int:
    return len(key.text) + (_loaded_bytes(value) if isinstance(value, Loaded) else REFUSAL_BYTES)


def _loaded_bytes(value: Loaded) -> int:
    return value.compiled.num_bytes + (value.fsm.num_bytes if value.fsm is not None else 0)
