r"""Search of a growing text for one string or one pattern: the earliest end, then the earliest start, in linear time.

Decides what a match is and how many trailing characters may still become part of one (`held`). Knows nothing of
requests. Text comes in any pieces; positions count from the first character ever fed. A search is over at its match.
Pieces matter only to a pattern that asks what comes after a place ($ \Z \b \B): the text so far ends with each piece.

A pattern runs as a deterministic automaton that is built as it is needed. Its states are ordered partitions of the
nondeterministic states: one group for each start that is still possible, earliest first. The starts themselves are
kept beside it, so one cached step serves texts of any length:

    text  a b b        pattern ab*c|bd        state after "abb":  ({b*, c}, {d})     starts: [0, 2]

An anchor that asks what comes next waits in its group for the next character, or for the end.
"""

from collections.abc import Iterable
from copy import copy
from functools import lru_cache
from typing import Self

from ramet.runtime.text.anchors import EDGE, END, FINAL_NEWLINE, sides_of, sides_read
from ramet.runtime.text.automaton import ACCEPT, Automaton
from ramet.runtime.text.character_tests import CharacterTests
from ramet.runtime.text.pattern import build_automaton

CACHE_UNITS = 100_000  # about 1 MB of cached states and steps for a pattern, then they are built anew
STEP_UNITS = 32
MAX_CHARACTERS = 4096  # whose tests are remembered

Span = tuple[int, int]  # [start, end) in characters
Groups = tuple[tuple[int, ...], ...]


class StringSearch:
    """Knuth, Morris and Pratt: one comparison a character, whatever the string."""

    __slots__ = ("_borders", "_position", "held", "string")

    def __init__(self, string: str) -> None:
        assert string, "an empty string stops nothing"
        self.string = string
        self._borders = [0]  # [i]: the longest proper prefix of string[: i + 1] that is also its end; made as needed
        self.held = 0  # first characters of `string` that the text ends with
        self._position = 0

    def feed(self, text: str) -> Span | None:
        string, matched, index = self.string, self.held, 0
        while index < len(text):
            if not matched:  # the usual case: skip to the first possible start
                index = text.find(string[0], index)
                if index < 0:
                    break
            while matched and text[index] != string[matched]:
                matched = self._border(matched)
            matched += text[index] == string[matched]
            index += 1
            if matched == len(string):
                end = self._position + index
                return end - matched, end
        self.held = matched
        self._position += len(text)
        return None

    def fork(self) -> Self:
        """A search that has read the same text."""
        return copy(self)

    def _border(self, length: int) -> int:
        """Of the first characters of the string: how many of them it also ends with, not counting all."""
        string, borders = self.string, self._borders
        while len(borders) < length:
            char, border = string[len(borders)], borders[-1]
            while border and char != string[border]:
                border = borders[border - 1]
            borders.append(border + (char == string[border]))
        return borders[length - 1]


class _State:
    """An ordered partition of automaton states, the sides of the character before it, and its known steps by symbol."""

    __slots__ = ("before", "groups", "steps")

    def __init__(self, before: int, groups: Groups) -> None:
        self.before, self.groups = before, groups
        self.steps: dict[str, _Step] = {}


# (next state, for each of its groups the group it came from, group that accepts or -1, characters read until then); the
# number of the old state's groups stands for a match that starts at this very place
_Step = tuple[_State, tuple[int, ...], int, int]


class Steps:
    """The steps of one automaton, shared by all texts it searches."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._tests = CharacterTests(automaton.leaves)
        self._states: dict[tuple[int, Groups], _State] = {}
        self._characters: dict[str, tuple[frozenset[int], int]] = {}  # the tests that one passes, its sides
        self._kinds: dict[tuple[frozenset[int], int], tuple[frozenset[int], int]] = {}  # each once
        self.units = 0  # size of what is remembered
        self._sides_before = sides_read(automaton.anchors.values(), ahead=False)  # a state remembers no others
        self.reads_after = automaton.reads_after
        start = (automaton.start,)  # where it leads depends on the place if there are anchors
        self._entry = start if automaton.anchors else automaton.close(start, set())
        self.start = self._state(EDGE, ())

    @property
    def num_kinds(self) -> int:
        """Of characters that all tests treat alike."""
        return len(self._kinds)

    def take(self, state: _State, symbol: str) -> _Step:
        """The step from `state` over a character or another symbol, computed and remembered."""
        if self.units > CACHE_UNITS:
            self._forget()
        step = self._compute(state, symbol)
        state.steps[symbol] = step
        self.units += STEP_UNITS + len(step[1])
        return step

    def _compute(self, state: _State, symbol: str) -> _Step:
        groups = (*state.groups, self._entry)
        if self._automaton.anchors:
            groups, accepting = self._close(groups, state.before, sides_of(symbol))
            if accepting >= 0:
                return self.start, (), accepting, 0
        if symbol == END:
            return state, tuple(range(len(state.groups))), -1, 0
        passed, sides = self._character(symbol[0])
        tests, targets = self._automaton.tests, self._automaton.targets
        moved = (tuple(targets[s][0] for s in group if tests[s] in passed) for group in groups)
        groups, accepting = self._close(moved, sides, None)
        if accepting >= 0:
            return self.start, (), accepting, 1
        origins = tuple(index for index, group in enumerate(groups) if group)
        return self._state(sides, tuple(group for group in groups if group)), origins, -1, 1

    def _close(self, groups: Iterable[tuple[int, ...]], before: int, after: int | None) -> tuple[Groups, int]:
        """What each group leads to at a place between these sides, without what an earlier group leads to; and the
        first group that accepts there, or -1.
        """
        waits = self.reads_after and after is None
        seen: set[int] = set()
        reached: list[tuple[int, ...]] = []
        for index, group in enumerate(groups):
            states = self._automaton.close(group, seen, before, after)
            if ACCEPT in states and not waits:
                return (), index
            reached.append(states)
        return tuple(reached), -1

    def _character(self, char: str) -> tuple[frozenset[int], int]:
        if len(self._characters) >= MAX_CHARACTERS:
            self._characters.clear()
            self._kinds.clear()
        if char not in self._characters:
            kind = self._tests.passed(char), sides_of(char)
            self._characters[char] = self._kinds.setdefault(kind, kind)
        return self._characters[char]

    def _state(self, before: int, groups: Groups) -> _State:
        before &= self._sides_before
        if (before, groups) not in self._states:
            self._states[before, groups] = _State(before, groups)
            self.units += STEP_UNITS + sum(map(len, groups))
        return self._states[before, groups]

    def _forget(self) -> None:
        self._states.clear()
        self.units = 0
        self.start.steps.clear()
        self._states[self.start.before, ()] = self.start


@lru_cache(maxsize=64)
def steps_of(pattern: str) -> Steps:
    return Steps(build_automaton(pattern))


class PatternSearch:
    """One pattern in one text. Raises PatternError for a pattern that is not served."""

    __slots__ = ("_position", "_starts", "_state", "_steps", "held", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._steps = steps_of(pattern)
        self._state = self._steps.start
        self._starts: list[int] = []  # one for each group of the state, ascending
        self._position = 0
        self.held = 0

    def feed(self, text: str) -> Span | None:
        if self._steps.reads_after:
            return self._feed_to_end(text) if text else None
        return self._read(text)

    def fork(self) -> Self:
        """A search that has read the same text."""
        other = copy(self)
        other._starts = self._starts.copy()
        return other

    def _feed_to_end(self, text: str) -> Span | None:
        """What matches at the end of the text so far is found there, and forgotten if it does not: more may come."""
        last = "\n" if text[-1] == "\n" else ""
        found = self._read(text.removesuffix("\n"))
        if last and found is None:
            place = self._state, self._starts.copy(), self._position
            found = self._read((FINAL_NEWLINE, END))
            self._state, self._starts, self._position = place
        return found or self._read((last or END,))

    def _read(self, symbols: Iterable[str]) -> Span | None:
        state, starts, position = self._state, self._starts, self._position
        for symbol in symbols:
            state, origins, accepted, width = state.steps.get(symbol) or self._steps.take(state, symbol)
            if accepted >= 0:
                return (starts[accepted] if accepted < len(starts) else position), position + width
            if origins:
                starts.append(position)
                starts = [starts[origin] for origin in origins]
            else:
                starts = []
            position += width
        self._state, self._starts, self._position = state, starts, position
        self.held = position - starts[0] if starts else 0
        return None
