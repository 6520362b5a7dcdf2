"""A pattern as the rules of its smallest automaton: a rule for each state, and never two ways to read a text.

xgrammar follows all ways at once. Where there are many, as in `(.*b*){3}`, it takes seconds for a mask, and its masks
may have tokens that it then refuses.
"""

from collections import defaultdict
from collections.abc import Callable

from ramet.runtime.grammar.alphabet import Alphabet
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.character_dfa import CharacterDfa, alphabet_of, determinise
from ramet.runtime.grammar.charsets import Ranges, intersection, union
from ramet.runtime.grammar.minimise import minimise
from ramet.runtime.grammar.regex import write
from ramet.runtime.grammar.tree import EMPTY, Alt, Chars, Node, Ref, Repeat, Rules, Seq, either
from ramet.runtime.text.automaton import PatternError, read_pattern

MAX_SIZE = 50_000  # of the pattern, with its repeats written out
# xgrammar writes all rules of a grammar into each of them: for the most that are allowed, 30 MB, a second to read
MAX_STATES = 256
MAX_RANGES = 6_000  # of characters, in all rules
MAX_REPEATS = 32  # of what is more than a character
TOO_LARGE = "has an automaton that is too large"


def add_pattern(pattern: Node, rules: Rules, spelled: Callable[[Node], Node], trusted: bool = False) -> Node:
    """What stands for the pattern; adds rules to those of a grammar. `spelled`: its characters as written there.

    Where its automaton has too many states it stays as it is, if it is `trusted` or cannot be read in many ways.
    Raises GrammarError otherwise.
    """
    alphabet, dfa = smallest(pattern)
    if dfa is None or is_large(dfa, alphabet):
        written = spelled(pattern)
        if trusted or not (is_slow(written) or is_ambiguous(pattern)):
            return written
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


def is_slow(node: Node, repeated: bool = False) -> bool:
    """It may be read in many ways at once."""
    match node:
        case Seq(parts) | Alt(parts):
            return any(is_slow(part, repeated) for part in parts)
        case Repeat(part, least, most):
            if repeated and least != most:
                return True
            if not isinstance(part, Chars) and (max(least, most or 0) > MAX_REPEATS):
                return True
            return is_slow(part, repeated or most is None or most > 1)
    return False


def is_ambiguous(node: Node) -> bool:
    """A repeat may go on with the same character that may follow it."""
    match node:
        case Seq(parts):
            return any(is_ambiguous(part) for part in parts) or any(
                intersection(goes_on_with(part), first_of(Seq(parts[i + 1 :]))[0]) for i, part in enumerate(parts)
            )
        case Alt(parts):
            return any(map(is_ambiguous, parts))
        case Repeat(part, _, most):
            again = most != 1 and bool(intersection(goes_on_with(part), first_of(part)[0]))
            return again or is_ambiguous(part)
    return False


def goes_on_with(node: Node) -> Ranges:
    """What a text that matches may be continued with so that it still matches."""
    match node:
        case Seq(parts):
            found: list[Ranges] = []
            for part in reversed(parts):
                found.append(goes_on_with(part))
                characters, may_be_empty = first_of(part)
                if not may_be_empty:
                    break
                found.append(characters)
            return union(*found)
        case Alt(parts):
            return union(*map(goes_on_with, parts))
        case Repeat(part, least, most):
            return union(goes_on_with(part), first_of(part)[0] if least != most else ())
    return ()


def first_of(node: Node) -> tuple[Ranges, bool]:
    """The characters that a match may begin with, and whether it may be empty."""
    match node:
        case Chars(ranges):
            return ranges, False
        case Seq(parts):
            found: list[Ranges] = []
            for part in parts:
                characters, may_be_empty = first_of(part)
                found.append(characters)
                if not may_be_empty:
                    return union(*found), False
            return union(*found), True
        case Alt(parts):
            firsts = [first_of(part) for part in parts]
            return union(*(characters for characters, _ in firsts)), any(empty for _, empty in firsts)
        case Repeat(part, least, _):
            characters, may_be_empty = first_of(part)
            return characters, may_be_empty or least == 0
    raise AssertionError(f"{node} cannot stand in a pattern")


def rule_of(
    dfa: CharacterDfa, state: int, ranges: tuple[Ranges, ...], prefix: str, spelled: Callable[[Node], Node]
) -> Node:
    by_target: dict[int, list[Ranges]] = defaultdict(list)
    for kind, target in dfa.steps[state].items():
        by_target[target].append(ranges[kind])
    options: list[Node] = [EMPTY] if dfa.accepts[state] else []
    options += [Seq((spelled(Chars(union(*sets))), Ref(f"{prefix}{target}"))) for target, sets in by_target.items()]
    return either(*options)
