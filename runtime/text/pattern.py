"""Stop patterns: which regular expressions may stop an output.

Decides that they are small, and that they do not match in every text. Knows no text; search.py runs the automaton.
"""

import re
from functools import lru_cache

from ramet.runtime.text.anchors import EDGE, NEIGHBOURS
from ramet.runtime.text.automaton import ACCEPT, Automaton, AutomatonLeaf, PatternError, read_pattern

WIDEST_FOLDED_RANGE = 256
# After counted repeats are written out; a character may visit every state, with anchors twice: 0.25 ms at 1,800 states
# and 0.4 ms at 1,500 states with anchors, measured.
MAX_STATES = 2000
# Different characters and classes of all patterns of a request that match in both cases under (?i): 60 us each.
MAX_FOLDED = 256


@lru_cache(maxsize=64)
def build_automaton(pattern: str) -> Automaton:
    """Raises PatternError for an expression that is broken, not regular, too large, or that matches in every text."""
    automaton = read_pattern(pattern, MAX_STATES)
    for leaf in automaton.leaves:
        _check_ranges(leaf)
    if _matches_everywhere(automaton):
        raise PatternError("matches the empty text at the start or the end of every output: it would stop each at once")
    return automaton


def _check_ranges(leaf: AutomatonLeaf) -> None:
    """Under (?i) the library looks at every character of a range: 65,000 of them take 4 ms."""
    ranges = [item for item in leaf.items if isinstance(item, tuple)]
    widest = max((last - first + 1 for first, last in ranges), default=0)
    if leaf.flags & re.IGNORECASE and widest > WIDEST_FOLDED_RANGE:
        raise PatternError(f"a range of {widest} characters under (?i), must have at most {WIDEST_FOLDED_RANGE}")


def _matches_everywhere(automaton: Automaton) -> bool:
    """At the start of every text, or at the end of every one: each text has one of NEIGHBOURS there."""

    def accepts(before: int, after: int) -> bool:
        return ACCEPT in automaton.close((automaton.start,), set(), before, after)

    return all(accepts(EDGE, first) for first in NEIGHBOURS) or all(accepts(last, EDGE) for last in NEIGHBOURS)
