r"""A pattern's deterministic automaton over classes of characters: it reads a whole text and accepts what matches.

Subset construction. An anchor that asks what comes next ($ \Z \b \B) waits in a state for the next character or for
the end. The work is bounded, so a pattern whose automaton is exponential is refused within seconds.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ramet.runtime.grammar.alphabet import Alphabet, build_alphabet
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.charsets import Ranges, escape_class
from ramet.runtime.grammar.code_points import code_points
from ramet.runtime.text.anchors import ASCII_WORD, EDGE, LAST_NEWLINE, NEWLINE, WORD, sides_of, sides_read
from ramet.runtime.text.automaton import ACCEPT, Automaton

MAX_WORK = 3_000_000  # states of the pattern's automaton that are looked at

NEWLINE_CODE = ord("\n")
Subset = tuple[int, tuple[int, ...], bool]  # sides of what is before, states it may be in, whether the text may end


@dataclass(frozen=True, slots=True)
class CharacterDfa:
    """State 0 is the start."""

    steps: list[dict[int, int]]  # of each state: class -> state
    accepts: list[bool]


def alphabet_of(automaton: Automaton) -> Alphabet:
    """Tells apart what the leaves tell apart, and what the anchors do."""
    anchors = automaton.anchors.values()
    asked = sides_read(anchors, ahead=False) | sides_read(anchors, ahead=True)
    sides: list[Ranges] = []
    if asked & (NEWLINE | LAST_NEWLINE):
        sides.append(((NEWLINE_CODE, NEWLINE_CODE),))
    if asked & (WORD | ASCII_WORD):
        sides += escape_class(r"\w", 0), escape_class(r"\w", re.ASCII)
    return build_alphabet([*map(code_points, automaton.leaves), *sides])


def determinise(automaton: Automaton, alphabet: Alphabet) -> CharacterDfa:
    """Raises GrammarError where it becomes too large."""
    subsets = _Subsets(automaton, alphabet)
    steps = list(subsets.steps())
    return CharacterDfa(steps, [accepts for _, _, accepts in subsets.known])


class _Subsets:
    def __init__(self, automaton: Automaton, alphabet: Alphabet) -> None:
        anchors = automaton.anchors.values()
        asked = sides_read(anchors, ahead=True)
        self._automaton = automaton
        self._sides = [sides_of(chr(code)) for code in alphabet.samples]
        self._asked_before = sides_read(anchors, ahead=False)
        # sides of the next character that an anchor asks for -> those classes of each leaf that have them
        self._classes: dict[int, list[list[int]]] = {
            after: [[c for c in classes if self._sides[c] & asked == after] for classes in alphabet.classes_of]
            for after in {sides & asked for sides in self._sides}
        }
        newline = {alphabet.samples.index(NEWLINE_CODE)} if asked & LAST_NEWLINE else set()
        self._newlines = [[c for c in classes if c in newline] for classes in alphabet.classes_of] if newline else []
        self._ids: dict[Subset, int] = {}
        self._work = 0
        self.known: list[Subset] = []  # by id

    def steps(self) -> Iterator[dict[int, int]]:
        """Of each subset in the order of their ids: class -> id of a subset."""
        start = (self._automaton.start,)
        self._id(EDGE, start, start)
        for before, states, _ in self.known:  # which grows meanwhile
            yield self._steps_from(before, states)

    def _steps_from(self, before: int, states: Sequence[int]) -> dict[int, int]:
        moved: dict[int, list[int]] = {}
        for after, classes_of in self._classes.items():
            moved |= self._move(before, states, after, classes_of)
        last = dict(moved)  # what counts if the text ends there: a $ matches in front of a newline that ends it
        if self._newlines:
            last |= self._move(before, states, NEWLINE | LAST_NEWLINE, self._newlines)
        return {c: self._id(self._sides[c], moved.get(c, ()), targets) for c, targets in last.items()}

    def _move(
        self, before: int, states: Sequence[int], after: int, classes_of: Sequence[Sequence[int]]
    ) -> dict[int, list[int]]:
        """Class -> where a character of it leads, if it has the sides `after`."""
        tests, targets = self._automaton.tests, self._automaton.targets
        if self._automaton.reads_after:
            states = self._close(states, before, after)
        moved: dict[int, list[int]] = defaultdict(list)
        for state in states:
            if tests[state] >= 0:
                for kind in classes_of[tests[state]]:
                    moved[kind].append(targets[state][0])
        self._count(sum(map(len, moved.values())))
        return moved

    def _id(self, before: int, states: Sequence[int], last: Sequence[int]) -> int:
        closed = self._close(states, before, None)
        subset = before & self._asked_before, closed, ACCEPT in self._close(last, before, EDGE)
        if subset not in self._ids:
            self._ids[subset] = len(self.known)
            self.known.append(subset)
        return self._ids[subset]

    def _close(self, states: Sequence[int], before: int, after: int | None) -> tuple[int, ...]:
        seen: set[int] = set()
        closed = self._automaton.close(states, seen, before, after)
        self._count(len(seen))
        return closed

    def _count(self, work: int) -> None:
        self._work += work
        if self._work > MAX_WORK:
            raise GrammarError(f"has too many states: {len(self.known)} are made before it is given up")
