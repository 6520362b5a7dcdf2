r"""The compressed finite state machine of a regular expression, over the bytes of UTF-8.

Where a constraint leaves no choice for a while, the text is known without a model: after `{"na` only `me": "` may
follow. A chain of states, from each of which a single byte leads on and where the text may not end, is one edge that
has all their bytes ("compressed finite state machine" in the SGLang paper):

    Grade: [A-F]        0 --"Grade: "--> 7 --[A-F]--> 8 (end)

An expression means what it means to Python's `re` (text/automaton.py says what is left out), and the whole text must
match it. The automaton is the smallest one, and every state of it leads to an end.
"""

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

import msgspec

from ramet.runtime.grammar.base import MAX_FORCED_BYTES, GrammarError
from ramet.runtime.grammar.character_dfa import alphabet_of, determinise
from ramet.runtime.grammar.minimise import minimise
from ramet.runtime.grammar.utf8_states import Runs, State, spell_out
from ramet.runtime.text.automaton import PatternError, read_pattern

MAX_PATTERN_BYTES = 1 << 20
MAX_PATTERN_STATES = 50_000  # its repeats written out


class ByteTable(msgspec.Struct, frozen=True, array_like=True):
    """All states. Runs [offsets[s], offsets[s + 1]) of bytes belong to state s, in ascending order."""

    offsets: bytes  # [S + 1] uint32
    firsts: bytes  # [N] uint8, the first byte of each run
    lasts: bytes  # [N] uint8
    targets: bytes  # [N] uint32
    accepts: bytes  # [S] uint8


class ByteFsm:
    """Immutable: shared by all outputs that keep to it."""

    start: State = 0

    def __init__(self, table: ByteTable) -> None:
        self._table = table
        self._firsts, self._lasts, self._accepts = table.firsts, table.lasts, table.accepts
        self._offsets, self._targets = memoryview(table.offsets).cast("I"), memoryview(table.targets).cast("I")

    @classmethod
    def from_bytes(cls, data: bytes) -> "ByteFsm":
        return cls(msgspec.msgpack.decode(data, type=ByteTable))

    def to_bytes(self) -> bytes:
        return msgspec.msgpack.encode(self._table)

    @property
    def num_states(self) -> int:
        return len(self._accepts)

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""
        return sum(map(len, msgspec.structs.astuple(self._table)))

    def step(self, state: State, byte: int) -> State | None:
        """None: no text that matches goes on so."""
        begin = self._offsets[state]
        run = bisect_right(self._firsts, byte, begin, self._offsets[state + 1]) - 1
        return self._targets[run] if run >= begin and byte <= self._lasts[run] else None

    def walk(self, state: State, data: bytes) -> State | None:
        for byte in data:
            reached = self.step(state, byte)
            if reached is None:
                return None
            state = reached
        return state

    def accepts(self, state: State) -> bool:
        """The text may end here."""
        return bool(self._accepts[state])

    def forced(self, state: State) -> bytes:
        """The bytes that must come next, at most MAX_FORCED_BYTES; b"" where there is a choice or the text may end."""
        return self.edge(state, MAX_FORCED_BYTES)[0]

    def edge(self, state: State, most: int | None = None) -> tuple[bytes, State]:
        """The forced bytes, `most` of them, and the state that they lead to."""
        found = bytearray()
        while (
            not self._accepts[state] and len(found) != most
        ):  # this comes to an end, since every state leads to one that accepts
            begin = self._offsets[state]
            if self._offsets[state + 1] - begin > 1 or self._firsts[begin] < self._lasts[begin]:
                break
            found.append(self._firsts[begin])
            state = self._targets[begin]
        return bytes(found), state

    def runs(self, state: State) -> Iterator[tuple[int, int, State]]:
        """The bytes that may come next, in ascending order: the first and the last of a run, where they lead."""
        for run in range(self._offsets[state], self._offsets[state + 1]):
            yield self._firsts[run], self._lasts[run], self._targets[run]

    def draw(self) -> str:
        """One line for each compressed edge: `0 --"Grade: "--> 7`, `7 --[A-F]--> 8 (end)`."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        drawn, queue = {self.start}, [self.start]
        for state in queue:  # which grows meanwhile
            for label, target in self._edges(state):
                yield f"{self._name(state)} --{label}--> {self._name(target)}"
                if target not in drawn:
                    drawn.add(target)
                    queue.append(target)

    def _edges(self, state: State) -> Iterator[tuple[str, State]]:
        forced, target = self.edge(state)
        if forced:
            text = forced.decode(errors="backslashreplace")
            shown = (char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
            yield f'"{"".join(shown)}"', target
            return
        labels: dict[State, str] = defaultdict(str)
        for first, last, target in self.runs(state):
            labels[target] += _shown(first, last)
        for target, label in labels.items():
            yield f"[{label}]", target

    def _name(self, state: State) -> str:
        return f"{state} (end)" if self._accepts[state] else str(state)


def build_byte_fsm(pattern: str) -> ByteFsm:
    """Raises GrammarError for a pattern that is broken, not regular or too large, or that no text matches."""
    size = len(pattern.encode(errors="replace"))
    if size > MAX_PATTERN_BYTES:
        raise GrammarError(f"has {size} bytes, must have at most {MAX_PATTERN_BYTES}")
    try:
        automaton = read_pattern(pattern, MAX_PATTERN_STATES)
    except PatternError as error:
        raise GrammarError(str(error)) from error
    alphabet = alphabet_of(automaton)
    dfa = minimise(determinise(automaton, alphabet))
    if dfa is None:
        raise GrammarError("matches no text")
    return ByteFsm(_table(spell_out(dfa, alphabet.lead), dfa.accepts))


def _table(states: list[Runs], accepts: list[bool]) -> ByteTable:
    """`accepts` of the first states; no other accepts."""
    runs = [run for state in states for run in state]
    return ByteTable(
        offsets=array("I", accumulate(map(len, states), initial=0)).tobytes(),
        firsts=bytes(first for first, _, _ in runs),
        lasts=bytes(last for _, last, _ in runs),
        targets=array("I", (target for _, _, target in runs)).tobytes(),
        accepts=bytes(accepts).ljust(len(states), b"\0"),
    )


def _shown(first: int, last: int) -> str:
    if last - first < 2:
        return "".join(map(_shown_byte, range(first, last + 1)))
    return f"{_shown_byte(first)}-{_shown_byte(last)}"


def _shown_byte(byte: int) -> str:
    char = chr(byte)
    return char if 0x20 < byte < 0x7F and char not in "[]^-\\" else f"\\x{byte:02X}"
