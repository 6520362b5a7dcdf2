r"""A regular expression as a nondeterministic automaton over characters, of bounded size.

Decides which expressions are regular: anchors are, lookaround and backreferences are refused by name and place. Knows
no text. The syntax tree is the standard library's, so an expression means what it means to `re`. Thompson's
construction, built from the end.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from re import _parser  # type: ignore[attr-defined]  # nothing public parses the syntax
from typing import Any, NamedTuple

from ramet.runtime.text.anchors import Anchor, anchor_of, sides_read

ACCEPT = 0

_LOOKAROUND = ("lookaround", r"\(\?<?[=!]")
_UNSUPPORTED = {  # node of the tree -> what it is called, how it is written
    "ASSERT": _LOOKAROUND,
    "ASSERT_NOT": _LOOKAROUND,
    "FAILURE": _LOOKAROUND,  # (?!)
    "GROUPREF": ("a backreference", r"\\[1-9]|\(\?P="),
    "GROUPREF_EXISTS": ("a conditional group", r"\(\?\("),
    "ATOMIC_GROUP": ("an atomic group", r"\(\?>"),
    "POSSESSIVE_REPEAT": ("a possessive repeat", r"[*+?}]\+"),
}
_OTHERS = r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|\(\?#[^)]*\)|."  # escapes, classes and comments hold none of these
CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
_LEAVES = ("LITERAL", "NOT_LITERAL", "ANY", "IN")
_LEAF_FLAGS = re.IGNORECASE | re.ASCII
_ALPHABETS = re.ASCII | re.UNICODE  # one of them holds

# One of a class: a code point, the first and the last one of a range, or a category such as \w.
Item = int | tuple[int, int] | str


class PatternError(ValueError):
    """An expression that is not served; the message names the construct, and its position where it has one."""


class AutomatonLeaf(NamedTuple):
    """What one character must be: one of `items`, or none of them."""

    items: tuple[Item, ...]
    negated: bool
    flags: int  # of `re`, those that change what a character is

    @property
    def character(self) -> str | None:
        """The only one that it may be, if there is one."""
        if len(self.items) != 1 or self.negated or self.is_folded or not isinstance(self.items[0], int):
            return None
        return chr(self.items[0])

    @property
    def is_folded(self) -> bool:
        """Under (?i) it may also be what differs from its items only in case."""
        return bool(self.flags & re.IGNORECASE) and any(map(_has_case, self.items))

    @property
    def source(self) -> str:
        """The same as an expression of `re` under these flags."""
        if not self.items:  # any character: what is not none of them
            return r"[\s\S]"
        return f"[{'^' if self.negated else ''}{''.join(map(_item_source, self.items))}]"


@dataclass
class Automaton:
    """State s reads a character that leaves[tests[s]] allows and goes on to targets[s][0], or, where tests[s] is -1, it
    branches freely to targets[s]. A state with an anchor branches only at places that its anchor matches.
    """

    pattern: str
    tests: list[int] = field(default_factory=lambda: [-1])  # index into leaves; state 0 accepts
    targets: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    anchors: dict[int, Anchor] = field(default_factory=dict)
    leaves: list[AutomatonLeaf] = field(default_factory=list)
    start: int = ACCEPT
    reads_after: bool = False  # an anchor asks what is after a place: until that is known, no match is the first one

    @property
    def size(self) -> int:
        return len(self.tests)

    def add(self, test: int, targets: tuple[int, ...]) -> int:
        self.tests.append(test)
        self.targets.append(targets)
        return len(self.tests) - 1

    def close(
        self, states: Iterable[int], seen: set[int], before: int = 0, after: int | None = None
    ) -> tuple[int, ...]:
        """Where `states` lead without reading a character, at a place between these sides: states that read one, those
        that wait until it is known what is `after` the place (None: not yet), and ACCEPT. States in `seen` are left
        out. WRITES seen.
        """
        tests, targets, anchors = self.tests, self.targets, self.anchors
        reached: list[int] = []
        stack = list(states)
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            seen.add(state)
            matches = anchors[state].matches(before, after) if state in anchors else True
            if tests[state] >= 0 or state == ACCEPT or matches is None:
                reached.append(state)
            elif matches:
                stack.extend(targets[state])
        reached.sort()
        return tuple(reached)


def read_pattern(pattern: str, max_states: int) -> Automaton:
    """Raises PatternError for an expression that is broken, not regular, or too large."""
    try:
        tree = _parser.parse(pattern)
        size = _size(tree, pattern)
        if size > max_states:
            raise PatternError(f"has {size} states with its repeats written out, must have at most {max_states}")
        return _Builder(pattern).build(tree)
    except RecursionError:
        raise PatternError("is nested too deeply") from None
    except (re.error, OverflowError) as error:
        raise PatternError(f"is not a valid pattern: {error}") from error


def _size(tree: Any, pattern: str) -> int:
    """States that the tree needs, found by arithmetic alone. Raises PatternError for what is not regular."""
    return sum(_node_size(str(op), value, pattern) for op, value in tree)


def _node_size(op: str, value: Any, pattern: str) -> int:
    if op in _LEAVES or op == "AT":
        return 1
    if op == "BRANCH":
        return 1 + sum(_size(way, pattern) for way in value[1])
    if op == "SUBPATTERN":
        return _size(value[3], pattern)
    if op in ("MAX_REPEAT", "MIN_REPEAT"):
        low, high, body = value
        copies = low + 1 if high is _parser.MAXREPEAT else high
        return int(copies) * (_size(body, pattern) + 1)  # 1: an empty body must not be repeated for free
    name, spelled = _UNSUPPORTED[op]
    at = next((f" at position {place}" for place in places_of(spelled, pattern)), "")
    raise PatternError(f"uses {name}{at}, which a linear-time matcher cannot have")


def places_of(spelled: str, pattern: str) -> Iterator[int]:
    """Offsets of the constructs that are written so. The tree does not know where its nodes are from."""
    found = re.finditer(rf"({spelled})|{_OTHERS}", pattern, re.DOTALL)
    return (match.start() for match in found if match[1])


def flags_inside(flags: int, on: int, off: int) -> int:
    """Those that hold inside of a group which sets and clears some."""
    kept = flags & ~_ALPHABETS if on & _ALPHABETS else flags
    return (kept | on) & ~off


class _Builder:
    def __init__(self, pattern: str) -> None:
        self._automaton = Automaton(pattern)
        self._known: dict[AutomatonLeaf, int] = {}  # -> index into leaves

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
        if op in _LEAVES:
            return self._automaton.add(self._test(_leaf(op, value, flags)), (after,))
        if op == "AT":
            return self._anchor(anchor_of(value, flags), after)
        if op == "BRANCH":
            return self._automaton.add(-1, tuple(self._sequence(way, after, flags) for way in value[1]))
        if op == "SUBPATTERN":
            _, on, off, body = value
            return self._sequence(body, after, flags_inside(flags, on, off))
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

    def _test(self, leaf: AutomatonLeaf) -> int:
        if leaf not in self._known:
            self._known[leaf] = len(self._automaton.leaves)
            self._automaton.leaves.append(leaf)
        return self._known[leaf]


def _leaf(op: str, value: Any, flags: int) -> AutomatonLeaf:
    kept = flags & _LEAF_FLAGS
    match op:
        case "ANY":
            return AutomatonLeaf(() if flags & re.DOTALL else (ord("\n"),), True, kept)
        case "LITERAL" | "NOT_LITERAL":
            return AutomatonLeaf((value,), op == "NOT_LITERAL", kept)
    items = [(str(kind), item) for kind, item in value]
    negated = items[0][0] == "NEGATE"
    return AutomatonLeaf(tuple(CATEGORIES.get(str(item), item) for _, item in items[negated:]), negated, kept)


def _has_case(item: Item) -> bool:
    """Of a range or a category it is not known."""
    return not isinstance(item, int) or not chr(item) == chr(item).lower() == chr(item).upper()


def _item_source(item: Item) -> str:
    match item:
        case str():
            return item
        case int():
            return _escape(item)
    return f"{_escape(item[0])}-{_escape(item[1])}"


def _escape(code: int) -> str:
    return f"\\U{code:08x}"
