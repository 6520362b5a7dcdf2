"""Search of a growing text for one string or one pattern: the earliest end, then the earliest start, in linear time.

Decides what a match is and how many trailing characters may still become part of one (`held`). Knows nothing of
requests. Text comes in any pieces; positions count from the first character ever fed. A search is over at its match.

A pattern runs as a deterministic automaton that is built as it is needed. Its states are ordered partitions of the
nondeterministic states: one group for each start that is still possible, earliest first. The starts themselves are
kept beside it, so one cached step serves texts of any length:

    text  a b b        pattern ab*c|bd        state after "abb":  ({b*, c}, {d})     starts: [0, 2]
"""

from functools import lru_cache

from ramet.runtime.text.pattern import ACCEPT, Automaton, build_automaton

CACHE_UNITS = 100_000  # about 1 MB of cached states and steps for a pattern, then they are built anew
STEP_UNITS = 32
MAX_CHARACTERS = 4096  # whose tests are remembered

Span = tuple[int, int]  # [start, end) in characters


class StringSearch:
    """Knuth, Morris and Pratt: one comparison a character, whatever the string."""

    __slots__ = ("_borders", "_position", "held", "string")

    def __init__(self, string: str) -> None:
        assert string, "an empty string stops nothing"
        self.string = string
        self._borders = _borders(string)
        self.held = 0  # first characters of `string` that the text ends with
        self._position = 0

    def feed(self, text: str) -> Span | None:
        string, borders, matched, index = self.string, self._borders, self.held, 0
        while index < len(text):
            if not matched:  # the usual case: skip to the first possible start
                index = text.find(string[0], index)
                if index < 0:
                    break
            while matched and text[index] != string[matched]:
                matched = borders[matched - 1]
            matched += text[index] == string[matched]
            index += 1
            if matched == len(string):
                end = self._position + index
                return end - matched, end
        self.held = matched
        self._position += len(text)
        return None


@lru_cache(maxsize=256)
def _borders(string: str) -> tuple[int, ...]:
    """borders[i]: length of the longest proper prefix of string[: i + 1] that is also its end."""
    borders = [0]
    for char in string[1:]:
        length = borders[-1]
        while length and char != string[length]:
            length = borders[length - 1]
        borders.append(length + (char == string[length]))
    return tuple(borders)


class _State:
    """An ordered partition of automaton states, and its known steps by character."""

    __slots__ = ("groups", "steps")

    def __init__(self, groups: tuple[tuple[int, ...], ...]) -> None:
        self.groups = groups
        self.steps: dict[str, _Step] = {}


# (next state, for each of its groups the group it came from, group that accepts or -1); the number of the old state's
# groups stands for a match that starts at this very character
_Step = tuple[_State, tuple[int, ...], int]


class Steps:
    """The steps of one automaton, shared by all texts it searches."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._states: dict[tuple[tuple[int, ...], ...], _State] = {}
        self._passed: dict[str, frozenset[int]] = {}
        self.units = 0  # size of what is remembered
        self._entry = self._reach((automaton.start,), set())[0]
        self.idle = self._state(())

    def take(self, state: _State, char: str) -> _Step:
        """The step from `state` on `char`, computed and remembered."""
        if self.units > CACHE_UNITS:
            self._forget()
        step = self._compute(state, char)
        state.steps[char] = step
        self.units += STEP_UNITS + len(step[1])
        return step

    def _compute(self, state: _State, char: str) -> _Step:
        passed = self._tests_passed(char)
        tests, targets = self._automaton.tests, self._automaton.targets
        seen: set[int] = set()
        groups: list[tuple[int, ...]] = []
        origins: list[int] = []
        for index, group in enumerate((*state.groups, self._entry)):
            reached, accepted = self._reach(tuple(targets[s][0] for s in group if tests[s] in passed), seen)
            if accepted:
                return self.idle, (), index
            if reached:
                groups.append(reached)
                origins.append(index)
        return self._state(tuple(groups)), tuple(origins), -1

    def _reach(self, states: tuple[int, ...], seen: set[int]) -> tuple[tuple[int, ...], bool]:
        """Testing states that `states` lead to freely, without those in `seen` (an earlier start has them), and whether
        ACCEPT is among them."""
        tests, targets = self._automaton.tests, self._automaton.targets
        reached: list[int] = []
        stack = list(states)
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            seen.add(state)
            if state == ACCEPT:
                return (), True
            if tests[state] >= 0:
                reached.append(state)
            else:
                stack.extend(targets[state])
        reached.sort()
        return tuple(reached), False

    def _tests_passed(self, char: str) -> frozenset[int]:
        if len(self._passed) >= MAX_CHARACTERS:
            self._passed.clear()
        if char not in self._passed:
            tests = enumerate(self._automaton.predicates)
            self._passed[char] = frozenset(i for i, test in tests if test.fullmatch(char))
        return self._passed[char]

    def _state(self, groups: tuple[tuple[int, ...], ...]) -> _State:
        if groups not in self._states:
            self._states[groups] = _State(groups)
            self.units += STEP_UNITS + sum(map(len, groups))
        return self._states[groups]

    def _forget(self) -> None:
        self._states.clear()
        self.units = 0
        self.idle.steps.clear()
        self._states[()] = self.idle


@lru_cache(maxsize=64)
def steps_of(pattern: str) -> Steps:
    return Steps(build_automaton(pattern))


class PatternSearch:
    """One pattern in one text. Raises PatternError for a pattern that is not served."""

    __slots__ = ("_position", "_starts", "_state", "_steps", "held", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._steps = steps_of(pattern)
        self._state = self._steps.idle
        self._starts: list[int] = []  # one for each group of the state, ascending
        self._position = 0
        self.held = 0

    def feed(self, text: str) -> Span | None:
        state, starts, position = self._state, self._starts, self._position
        for char in text:
            state, origins, accepted = state.steps.get(char) or self._steps.take(state, char)
            if accepted >= 0:
                return (starts[accepted] if accepted < len(starts) else position), position + 1
            if origins:
                starts.append(position)
                starts = [starts[origin] for origin in origins]
            else:
                starts = []
            position += 1
        self._state, self._starts, self._position = state, starts, position
        self.held = position - starts[0] if starts else 0
        return None
