"""Stop patterns: a regular expression to a nondeterministic automaton over characters, of bounded size.

Decides which expressions are served: those that are regular, anchors included, and do not match in every text. Knows no
text; search.py runs the automaton. The syntax tree is the standard library's, and each single-character test (a class,
a category, any case) is left to its `re`, so the two agree on what a character is. Thompson's construction, built from
the end.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from re import _parser  # type: ignore[attr-defined]  # the only public parser of the syntax is this private module
from typing import Any

from ramet.runtime.text.anchors import EDGE, NEIGHBOURS, Anchor, anchor_of, sides_read

WIDEST_FOLDED_RANGE = 256
# After counted repeats are written out; a character may visit every state, with anchors twice: 0.25 ms at 1,800 states
# and 0.4 ms at 1,500 states with anchors, measured.
MAX_STATES = 2000
ACCEPT = 0

_UNSUPPORTED = {
    "ASSERT": "lookaround",
    "ASSERT_NOT": "lookaround",
    "FAILURE": "lookaround",
    "GROUPREF": "a backreference",
    "GROUPREF_EXISTS": "a conditional group",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repeat",
}
_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
_CHARACTERS = ("LITERAL", "NOT_LITERAL", "ANY", "IN")
_CHARACTER_FLAGS = re.IGNORECASE | re.DOTALL | re.ASCII
_ALPHABETS = re.ASCII | re.UNICODE  # one of them holds


class PatternError(ValueError):
    """An expression that is not served; the message names the construct."""


@dataclass
class Automaton:
    """State s tests a character (tests[s] >= 0) and goes on to targets[s][0], or it branches freely to targets[s].

    A state with an anchor branches only at places that its anchor matches.
    """

    pattern: str
    tests: list[int] = field(default_factory=lambda: [-1])  # index into predicates; state 0 accepts
    targets: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    anchors: dict[int, Anchor] = field(default_factory=dict)
    predicates: list[re.Pattern[str]] = field(default_factory=list)  # each matches one character
    start: int = ACCEPT
    reads_after: bool = False  # an anchor asks what is after a place: until that is known, no match is the first one

    @property
    def size(self) -> int:
        return len(self.tests)

    def add(self, test: int, targets: tuple[int, ...]) -> int:
        self.tests.append(test)
        self.targets.append(targets)
        return len(self.tests) - 1

    def reach(
        self, states: Iterable[int], seen: set[int], before: int = 0, after: int | None = None
    ) -> tuple[tuple[int, ...], bool]:
        """Where `states` lead without reading a character, at a place between these sides: states that test one, those
        that wait until it is known what is `after` the place (None: not yet), and whether ACCEPT is reached. States in
        `seen` are left out. WRITES seen.
        """
        tests, targets, anchors = self.tests, self.targets, self.anchors
        waits = self.reads_after and after is None
        reached: list[int] = []
        stack = list(states)
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            seen.add(state)
            if state == ACCEPT and not waits:
                return (), True
            matches = anchors[state].matches(before, after) if state in anchors else True
            if tests[state] >= 0 or state == ACCEPT or matches is None:
                reached.append(state)
            elif matches:
                stack.extend(targets[state])
        reached.sort()
        return tuple(reached), False


@lru_cache(maxsize=64)
def build_automaton(pattern: str) -> Automaton:
    """Raises PatternError for an expression that is broken, not regular, too large, or that matches in every text."""
    try:
        tree = _parser.parse(pattern)
        size = _size(tree)
        if size > MAX_STATES:
            raise PatternError(f"has {size} states with its repeats written out, must have at most {MAX_STATES}")
        automaton = _Builder(pattern).build(tree)
    except RecursionError:
        raise PatternError("is nested too deeply") from None
    except (re.error, OverflowError) as error:
        raise PatternError(f"is not a valid pattern: {error}") from error
    if _matches_everywhere(automaton):
        raise PatternError("matches the empty text at the start or the end of every output: it would stop each at once")
    return automaton


def _size(tree: Any) -> int:
    """States that the tree needs, found by arithmetic alone. Raises PatternError for what is not regular."""
    return sum(_node_size(str(op), value) for op, value in tree)


def _node_size(op: str, value: Any) -> int:
    if op in _CHARACTERS or op == "AT":
        return 1
    if op == "BRANCH":
        return 1 + sum(map(_size, value[1]))
    if op == "SUBPATTERN":
        return _size(value[3])
    if op in ("MAX_REPEAT", "MIN_REPEAT"):
        low, high, body = value
        copies = low + 1 if high is _parser.MAXREPEAT else high
        return int(copies) * (_size(body) + 1)  # 1: an empty body must not be repeated for free
    raise PatternError(f"uses {_UNSUPPORTED.get(op, op)}, which a linear-time matcher cannot have")


class _Builder:
    def __init__(self, pattern: str) -> None:
        self._automaton = Automaton(pattern)
        self._known: dict[tuple[str, int], int] = {}  # (class, flags) -> index into predicates

    def build(self, tree: Any) -> Automaton:
        self._automaton.start = self._sequence(tree, ACCEPT, tree.state.flags)
        self._automaton.reads_after = bool(sides_read(self._automaton.anchors.values(), ahead=True))
        return self._automaton

    def _sequence(self, tree: Any, after: int, flags: int) -> int:
        """The state that enters `tree` and leaves it to `after`."""
        for op, value in reversed(list(tree)):
            after = self._node(str(op), value, after, flags)
        return after

    def _node(self, op: str, value: Any, after: int, flags: int) -> int:
        if op in _CHARACTERS:
            return self._automaton.add(self._test(op, value, flags), (after,))
        if op == "AT":
            return self._anchor(anchor_of(value, flags), after)
        if op == "BRANCH":
            return self._automaton.add(-1, tuple(self._sequence(way, after, flags) for way in value[1]))
        if op == "SUBPATTERN":
            _, on, off, body = value
            kept = flags & ~_ALPHABETS if on & _ALPHABETS else flags
            return self._sequence(body, after, (kept | on) & ~off)
        low, high, body = value
        return self._repeat(low, high, body, after, flags)

    def _repeat(self, low: int, high: Any, body: Any, after: int, flags: int) -> int:
        entry = after
        if high is _parser.MAXREPEAT:
            entry = self._automaton.add(-1, ())
            self._automaton.targets[entry] = (self._sequence(body, entry, flags), after)
        else:
            for _ in range(high - low):  # x{0,2} is (x(x)?)?
                entry = self._automaton.add(-1, (self._sequence(body, entry, flags), after))
        for _ in range(low):
            entry = self._sequence(body, entry, flags)
        return entry

    def _anchor(self, anchor: Anchor, after: int) -> int:
        state = self._automaton.add(-1, (after,))
        self._automaton.anchors[state] = anchor
        return state

    def _test(self, op: str, value: Any, flags: int) -> int:
        source = _character_source(op, value)
        key = (source, flags & _CHARACTER_FLAGS)
        if flags & re.IGNORECASE and op == "IN":
            _check_ranges(value)
        if key not in self._known:
            self._known[key] = len(self._automaton.predicates)
            self._automaton.predicates.append(re.compile(*key))
        return self._known[key]


def _check_ranges(items: Any) -> None:
    """Under (?i) the library looks at every character of a range: 65,000 of them take 4 ms."""
    widest = max((item[1] - item[0] + 1 for kind, item in items if str(kind) == "RANGE"), default=0)
    if widest > WIDEST_FOLDED_RANGE:
        raise PatternError(f"a range of {widest} characters under (?i), must have at most {WIDEST_FOLDED_RANGE}")


def _character_source(op: str, value: Any) -> str:
    """The one-character expression of a leaf of the tree."""
    match op:
        case "ANY":
            return "."
        case "LITERAL":
            return _escape(value)
        case "NOT_LITERAL":
            return f"[^{_escape(value)}]"
    items = [(str(kind), item) for kind, item in value]
    negated = items[0][0] == "NEGATE"
    return f"[{'^' if negated else ''}{''.join(_item_source(kind, item) for kind, item in items[negated:])}]"


def _item_source(kind: str, item: Any) -> str:
    match kind:
        case "LITERAL":
            return _escape(item)
        case "RANGE":
            return f"{_escape(item[0])}-{_escape(item[1])}"
    return _CATEGORIES[str(item)]


def _escape(code: int) -> str:
    return f"\\U{code:08x}"


def _matches_everywhere(automaton: Automaton) -> bool:
    """At the start of every text, or at the end of every one: each text has one of NEIGHBOURS there."""

    def accepts(before: int, after: int) -> bool:
        return automaton.reach((automaton.start,), set(), before, after)[1]

    return all(accepts(EDGE, first) for first in NEIGHBOURS) or all(accepts(last, EDGE) for last in NEIGHBOURS)
