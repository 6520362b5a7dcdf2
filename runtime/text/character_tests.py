"""Which leaves of an automaton a character passes: what each means is Python's `re`.

A leaf that names code points, ranges and categories is compared with the character. Only a leaf whose items have
another case under (?i) is compiled as an expression of `re`, which takes far longer than all else.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache, partial

from ramet.runtime.text.automaton import AutomatonLeaf

Test = Callable[[str], object]  # of one character: truthy where it passes


class CharacterTests:
    """The tests of some leaves, each known by its index among them."""

    def __init__(self, leaves: Iterable[AutomatonLeaf]) -> None:
        self._same: dict[str, list[int]] = {}  # a character -> leaves that only it passes
        self._tests: list[tuple[int, Test]] = []  # of the other leaves
        for index, leaf in enumerate(leaves):
            if leaf.character is None:
                self._tests.append((index, _test_of(leaf)))
            else:
                self._same.setdefault(leaf.character, []).append(index)

    def passed(self, char: str) -> frozenset[int]:
        """Indices of the leaves that it passes."""
        others = (index for index, test in self._tests if test(char))
        return frozenset((*self._same.get(char, ()), *others))


def _test_of(leaf: AutomatonLeaf) -> Test:
    if leaf.is_folded:
        return _compiled(leaf.source, leaf.flags)
    codes = frozenset(item for item in leaf.items if isinstance(item, int))
    ranges = tuple(item for item in leaf.items if isinstance(item, tuple))
    names = "".join(item for item in leaf.items if isinstance(item, str))
    category = _compiled(f"[{names}]", leaf.flags) if names else None
    return partial(_passes, codes, ranges, category, leaf.negated)


@lru_cache(maxsize=1024)
def _compiled(source: str, flags: int) -> Test:
    """Shared by all patterns: those of one language have few different tests."""
    return re.compile(source, flags).fullmatch


def _passes(
    codes: frozenset[int], ranges: tuple[tuple[int, int], ...], category: Test | None, negated: bool, char: str
) -> bool:
    code = ord(char)
    found = code in codes or any(first <= code <= last for first, last in ranges)
    return (found or (category is not None and category(char) is not None)) != negated
