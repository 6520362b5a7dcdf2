"""Stop patterns: a regular expression to a nondeterministic automaton over characters, of bounded size.

Decides which expressions are served: those that are regular and match at least one character. Knows no text; search.py
runs the automaton. The syntax tree is the standard library's, and each single-character test (a class, a category, any
case) is left to its `re`, so the two agree on what a character is. Thompson's construction, built from the end.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from re import _parser  # type: ignore[attr-defined]  # the only public parser of the syntax is this private module
from typing import Any

# After counted repeats are written out; a character may visit every state: 0.25 ms at 1,800 states, measured.
WIDEST_FOLDED_RANGE = 256
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
_ANCHORS = {
    "AT_BEGINNING": "the anchor ^",
    "AT_BEGINNING_STRING": r"the anchor \A",
    "AT_END": "the anchor $",
    "AT_END_STRING": r"the anchor \Z",
    "AT_BOUNDARY": r"the word boundary \b",
    "AT_NON_BOUNDARY": r"the word boundary \B",
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


class PatternError(ValueError):
    """An expression that is not served; the message names the construct."""


@dataclass
class Automaton:
    """State s tests a character (tests[s] >= 0) and goes on to targets[s][0], or it branches freely to targets[s]."""

    pattern: str
    tests: list[int] = field(default_factory=lambda: [-1])  # index into predicates; state 0 accepts
    targets: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    predicates: list[re.Pattern[str]] = field(default_factory=list)  # each matches one character
    start: int = ACCEPT

    @property
    def size(self) -> int:
        return len(self.tests)

    def add(self, test: int, targets: tuple[int, ...]) -> int:
        self.tests.append(test)
        self.targets.append(targets)
        return len(self.tests) - 1


@lru_cache(maxsize=64)
def build_automaton(pattern: str) -> Automaton:
    """Raises PatternError for an expression that is broken, not regular, too large, or that matches the empty text."""
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
    if _reaches_accept(automaton):
        raise PatternError("matches the empty text, must match at least one character")
    return automaton


def _size(tree: Any) -> int:
    """States that the tree needs, found by arithmetic alone. Raises PatternError for what is not regular."""
    return sum(_node_size(str(op), value) for op, value in tree)


def _node_size(op: str, value: Any) -> int:
    if op in _CHARACTERS:
        return 1
    if op == "BRANCH":
        return 1 + sum(map(_size, value[1]))
    if op == "SUBPATTERN":
        return _size(value[3])
    if op in ("MAX_REPEAT", "MIN_REPEAT"):
        low, high, body = value
        copies = low + 1 if high is _parser.MAXREPEAT else high
        return int(copies) * (_size(body) + 1)  # 1: an empty body must not be repeated for free
    if op == "AT":
        raise PatternError(f"uses {_ANCHORS.get(str(value), 'an anchor')}, which a stop pattern cannot have")
    raise PatternError(f"uses {_UNSUPPORTED.get(op, op)}, which a linear-time matcher cannot have")


class _Builder:
    def __init__(self, pattern: str) -> None:
        self._automaton = Automaton(pattern)
        self._known: dict[tuple[str, int], int] = {}  # (class, flags) -> index into predicates

    def build(self, tree: Any) -> Automaton:
        self._automaton.start = self._sequence(tree, ACCEPT, tree.state.flags)
        return self._automaton

    def _sequence(self, tree: Any, after: int, flags: int) -> int:
        """The state that enters `tree` and leaves it to `after`."""
        for op, value in reversed(list(tree)):
            after = self._node(str(op), value, after, flags)
        return after

    def _node(self, op: str, value: Any, after: int, flags: int) -> int:
        if op in _CHARACTERS:
            return self._automaton.add(self._test(op, value, flags), (after,))
        if op == "BRANCH":
            return self._automaton.add(-1, tuple(self._sequence(way, after, flags) for way in value[1]))
        if op == "SUBPATTERN":
            _, on, off, body = value
            return self._sequence(body, after, (flags | on) & ~off)
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


def _reaches_accept(automaton: Automaton) -> bool:
    seen, stack = set[int](), [automaton.start]
    while stack:
        state = stack.pop()
        if state == ACCEPT:
            return True
        if state not in seen and automaton.tests[state] < 0:
            seen.add(state)
            stack.extend(automaton.targets[state])
    return False
