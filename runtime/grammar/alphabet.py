"""The characters that an automaton tells apart, as few classes, and how each class is spelled in UTF-8.

A class is a set of code points that all leaves treat alike; what no leaf allows is in no class. `lead` reads the first
byte of a character: a Prefix maps a byte to a class, or to the Prefix that reads the next byte.

    class 0: a, class 1: è é        61 -> 0    C3 -> Prefix(A8..A9 -> 1)
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ramet.runtime.grammar.charsets import Ranges

# The first and the last code point of a span, and their class; ascending.
Spans = list[tuple[int, int, int]]

# Of the characters of one, two, three and four bytes: the first and the last one; their lowest first byte, how many
# first bytes there are.
LENGTHS = (
    (0, 0x7F, 0x00, 0x80),
    (0x80, 0x7FF, 0xC0, 0x20),
    (0x800, 0xFFFF, 0xE0, 0x10),
    (0x10000, 0x10FFFF, 0xF0, 0x08),
)
CONTINUATION = 0x80  # the lowest of the other bytes, each of which has six bits of the code point
SIX = 6


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """Some first bytes of a character."""

    runs: "tuple[Run, ...]"  # ascending
    classes: tuple[int, ...]  # of all characters that begin so, ascending


Run = tuple[int, int, int | Prefix]  # the first and the last next byte, what they lead to


@dataclass(frozen=True, slots=True)
class Alphabet:
    classes_of: tuple[tuple[int, ...], ...]  # of each leaf
    ranges: tuple[Ranges, ...]  # the code points of each class
    lead: Prefix

    @property
    def samples(self) -> tuple[int, ...]:
        """A code point of each class."""
        return tuple(ranges[0][0] for ranges in self.ranges)


def build_alphabet(leaves: Sequence[Ranges]) -> Alphabet:
    spans, classes_of = _partition(leaves)
    members: list[list[tuple[int, int]]] = [[] for _ in {kind for _, _, kind in spans}]
    for first, last, kind in spans:
        members[kind].append((first, last))
    runs: list[Run] = []
    for num_more, (lowest, highest, mark, count) in enumerate(LENGTHS):
        runs += _RangeReader(spans, lowest, highest).runs(0, num_more, mark, count)
    return Alphabet(classes_of, tuple(map(tuple, members)), _prefix(runs))


def _partition(leaves: Sequence[Ranges]) -> tuple[Spans, tuple[tuple[int, ...], ...]]:
    """All code points that some leaf allows, ascending, with their class; and the classes of each leaf."""
    changes: dict[int, int] = defaultdict(int)  # code point -> leaves that begin or end there, as bits
    for leaf, ranges in enumerate(leaves):
        for first, last in ranges:
            changes[first] ^= 1 << leaf
            changes[last + 1] ^= 1 << leaf
    kinds: dict[int, int] = {}  # leaves, as bits -> class
    spans: Spans = []
    allowing, start = 0, 0
    for code in sorted(changes):
        if allowing:
            spans.append((start, code - 1, kinds.setdefault(allowing, len(kinds))))
        allowing, start = allowing ^ changes[code], code
    members: list[list[int]] = [[] for _ in leaves]
    for bits, kind in kinds.items():
        while bits:
            members[bits.bit_length() - 1].append(kind)
            bits ^= 1 << (bits.bit_length() - 1)
    return spans, tuple(map(tuple, members))


class _RangeReader:
    """Makes the prefixes of the characters of one length."""

    def __init__(self, spans: Spans, lowest: int, highest: int) -> None:
        inside = [span for span in spans if span[0] <= highest and span[1] >= lowest]
        self._spans = [(max(first, lowest), min(last, highest), kind) for first, last, kind in inside]
        self._starts = [first for first, _, _ in self._spans]
        self._uniform: dict[tuple[int, int], Prefix] = {}  # (class, bytes that follow)

    def runs(self, first: int, num_more: int, mark: int, count: int) -> list[Run]:
        """Of the bytes from `mark` on, each followed by num_more bytes; with the first of them a character is `first`
        or one of those behind it."""
        width = 1 << SIX * num_more
        read = ((mark + i, self._read(first + i * width, num_more)) for i in range(count))
        return [(byte, byte, target) for byte, target in read if target is not None]

    def _read(self, first: int, num_more: int) -> int | Prefix | None:
        """What leads on to `first` and the characters behind it that num_more bytes tell apart."""
        last = first + (1 << SIX * num_more) - 1
        index = bisect_right(self._starts, last) - 1
        if index < 0 or self._spans[index][1] < first:
            return None
        start, end, kind = self._spans[index]
        if start <= first and end >= last:
            return self._any_of(kind, num_more)
        return _prefix(self.runs(first, num_more - 1, CONTINUATION, 1 << SIX))

    def _any_of(self, kind: int, num_more: int) -> int | Prefix:
        """All of these characters are of one class."""
        if not num_more:
            return kind
        key = kind, num_more
        if key not in self._uniform:
            run = CONTINUATION, CONTINUATION + (1 << SIX) - 1, self._any_of(kind, num_more - 1)
            self._uniform[key] = Prefix((run,), (kind,))
        return self._uniform[key]


def _prefix(runs: list[Run]) -> Prefix:
    merged: list[Run] = []
    classes: set[int] = set()
    for first, last, target in runs:
        classes.update(target.classes if isinstance(target, Prefix) else (target,))
        if merged and merged[-1][1] + 1 == first and merged[-1][2] == target:
            merged[-1] = merged[-1][0], last, target
        else:
            merged.append((first, last, target))
    return Prefix(tuple(merged), tuple(sorted(classes)))
