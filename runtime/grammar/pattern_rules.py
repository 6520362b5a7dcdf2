"""A pattern as the rules of its smallest automaton: a rule for each state, and never two ways to read a text.

xgrammar follows all ways at once. Where there are many, as in `(.*b*){3}`, it takes seconds for a mask, and its masks
may have tokens that it then refuses.
"""

from collections import defaultdict
from collections.abc import Callable

from ramet.runtime.grammar.alphabet import Alphabet
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.character_dfa import CharacterDfa, alphabet_of, determinise
from ramet.runtime.grammar.charsets import Ranges, union
from ramet.runtime.grammar.minimise import minimise
from ramet.runtime.grammar.regex import write
from ramet.runtime.grammar.tree import EMPTY, Chars, Node, Ref, Rules, Seq, either
from ramet.runtime.text.automaton import PatternError, read_pattern

MAX_SIZE = 50_000  # of the pattern, with its repeats written out
# xgrammar writes all rules of a grammar into each of them: for the most that are allowed, 30 MB, a second to read
MAX_STATES = 256
MAX_RANGES = 6_000  # of characters, in all rules
TOO_LARGE = "has an automaton that is too large"


def add_pattern(pattern: Node, rules: Rules, spelled: Callable[[Node], Node], trusted: bool = False) -> Node:
    """What stands for the pattern; adds rules to those of a grammar. `spelled`: its characters as written there.

    Where its automaton has too many states it stays as it is, if it is `trusted`. Raises GrammarError otherwise.
    """
    alphabet, dfa = smallest(pattern)
    if dfa is None or is_large(dfa, alphabet):
        if trusted:
            return spelled(pattern)
        raise GrammarError(TOO_LARGE)
    prefix = f"pattern-{len(rules)}-"
    for state in range(len(dfa.steps)):
        rules[f"{prefix}{state}"] = rule_of(dfa, state, alphabet.ranges, prefix, spelled)
    return Ref(f"{prefix}0")


def check_size(pattern: Node) -> None:
    """Raises GrammarError for a pattern whose automaton nobody makes in reasonable time."""
    if smallest(pattern)[1] is None:
        raise GrammarError(TOO_LARGE)


def smallest(pattern: Node) -> tuple[Alphabet, CharacterDfa | None]:
    """None: it has very many states. Raises GrammarError for a pattern that matches no text."""
    try:
        automaton = read_pattern(write(pattern), MAX_SIZE)
    except PatternError as error:
        raise GrammarError(str(error)) from error
    alphabet = alphabet_of(automaton)
    try:
        dfa = determinise(automaton, alphabet)
    except GrammarError:
        return alphabet, None
    found = minimise(dfa)
    if found is None:
        raise GrammarError("matches no text")
    return alphabet, found


def is_large(dfa: CharacterDfa, alphabet: Alphabet) -> bool:
    num_ranges = sum(len(alphabet.ranges[kind]) for steps in dfa.steps for kind in steps)
    return len(dfa.steps) > MAX_STATES or num_ranges > MAX_RANGES


def rule_of(
    dfa: CharacterDfa, state: int, ranges: tuple[Ranges, ...], prefix: str, spelled: Callable[[Node], Node]
) -> Node:
    by_target: dict[int, list[Ranges]] = defaultdict(list)
    for kind, target in dfa.steps[state].items():
        by_target[target].append(ranges[kind])
    options: list[Node] = [EMPTY] if dfa.accepts[state] else []
    options += [Seq((spelled(Chars(union(*sets))), Ref(f"{prefix}{target}"))) for target, sets in by_target.items()]
    return either(*options)
