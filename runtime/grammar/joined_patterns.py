"""Patterns that one string must match, joined to fewer ones: for llguidance, which proves in few steps that some text
matches all of them, or refuses them.

The product of their smallest automata is written as a regular expression again, state by state. What becomes too large
stays apart.
"""

from ramet.runtime.grammar import regex
from ramet.runtime.grammar.alphabet import build_alphabet
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.character_dfa import CharacterDfa
from ramet.runtime.grammar.charsets import Ranges, intersection, union
from ramet.runtime.grammar.json_schema import SchemaDocument
from ramet.runtime.grammar.minimise import minimise
from ramet.runtime.grammar.pattern_rules import smallest
from ramet.runtime.grammar.tree import EMPTY, Alt, Chars, Node, Repeat, Seq, size

MAX_PAIRS = 4_000  # states of a product, before it is made smaller
MAX_STATES = 256
MAX_SIZE = 2_000  # characters of an expression that is written from an automaton
MAX_WORK = 20_000  # characters of all expressions while it is written

Steps = list[dict[int, Ranges]]  # of each state: state -> the characters that lead there
Fsm = tuple[Steps, list[bool]]  # and whether each state accepts


def join_patterns(document: SchemaDocument) -> None:
    """CHANGES the document: in each schema, the patterns of `allOf` and the one beside it are joined."""
    targets = document.targets.values()
    for schema in reversed(document.places.values()):
        if not isinstance(schema, dict):
            continue
        options = schema.get("allOf", ())
        parts = [part for part in (*options, schema) if isinstance(part, dict) and "pattern" in part]
        if len(parts) > 1 and not any(part is target for part in options for target in targets):
            first, *others = joined([part.pop("pattern") for part in parts])
            schema["pattern"] = first
            schema["allOf"] += [{"pattern": pattern} for pattern in others]


def joined(patterns: list[str]) -> list[str]:
    """Patterns of whole strings: fewer ones, if possible, which together match the same."""
    found: list[tuple[str, Fsm | None]] = []
    for pattern in patterns:
        fsm = fsm_of(pattern)
        for i, (_, other) in enumerate(found):
            both = None if fsm is None or other is None else product(other, fsm)
            written = None if both is None else expression(*both)
            if written is not None:
                found[i] = f"^(?:{regex.write(written)})$", both
                break
        else:
            found.append((pattern, fsm))
    return [pattern for pattern, _ in found]


def fsm_of(pattern: str) -> Fsm | None:
    try:
        alphabet, dfa = smallest(regex.whole(pattern))
    except GrammarError:  # nothing matches it, which the library says better
        return None
    return None if dfa is None or len(dfa.steps) > MAX_STATES else (steps_of(dfa, alphabet.ranges), dfa.accepts)


def steps_of(dfa: CharacterDfa, ranges: tuple[Ranges, ...]) -> Steps:
    found: Steps = []
    for steps in dfa.steps:
        found.append({})
        for kind, target in steps.items():
            found[-1][target] = union(found[-1].get(target, ()), ranges[kind])
    return found


def product(one: Fsm, other: Fsm) -> Fsm | None:
    """What both accept. None: nothing, or it has too many states."""
    known, steps = {(0, 0): 0}, list[dict[int, Ranges]]()
    pairs = [(0, 0)]
    for a, b in pairs:
        steps.append({})
        for to_a, of_a in one[0][a].items():
            for to_b, of_b in other[0][b].items():
                if not (shared := intersection(of_a, of_b)):
                    continue
                if (to_a, to_b) not in known:
                    known[to_a, to_b] = len(pairs)
                    pairs.append((to_a, to_b))
                steps[-1][known[to_a, to_b]] = shared
        if len(pairs) > MAX_PAIRS:
            return None
    labels = sorted({ranges for targets in steps for ranges in targets.values()})
    alphabet = build_alphabet(labels)
    classes = dict(zip(labels, alphabet.classes_of, strict=True))
    kinds = [{kind: target for target, ranges in targets.items() for kind in classes[ranges]} for targets in steps]
    dfa = minimise(CharacterDfa(kinds, [one[1][a] and other[1][b] for a, b in pairs]))
    return None if dfa is None or len(dfa.steps) > MAX_STATES else (steps_of(dfa, alphabet.ranges), dfa.accepts)


def expression(steps: Steps, accepts: list[bool]) -> Node | None:
    """The texts that lead from state 0 to one that accepts. None: it is too large."""
    start, end = len(steps), len(steps) + 1
    ways: dict[tuple[int, int], Node] = {(start, 0): EMPTY}
    ways |= {
        (state, target): Chars(ranges) for state, targets in enumerate(steps) for target, ranges in targets.items()
    }
    ways |= {(state, end): EMPTY for state, is_end in enumerate(accepts) if is_end}
    left = set(range(len(steps)))
    while left:
        state = min(left, key=lambda each: growth(ways, each))
        left.remove(state)
        into, out = around(ways, state)
        loop = ways.get((state, state))
        again = () if loop is None else (Repeat(loop, 0, None),)
        ways = {key: node for key, node in ways.items() if state not in key}
        for source, before in into.items():
            for target, after in out.items():
                way = sequence(before, *again, after)
                known = ways.get((source, target))
                ways[source, target] = way if known is None else widened(known, way)
        if sum(map(size, ways.values())) > MAX_WORK:
            return None
    whole = ways[start, end]
    return whole if size(whole) <= MAX_SIZE else None


def around(ways: dict[tuple[int, int], Node], state: int) -> tuple[dict[int, Node], dict[int, Node]]:
    """The ways into a state from others, and out of it to others."""
    into = {source: node for (source, target), node in ways.items() if target == state != source}
    out = {target: node for (source, target), node in ways.items() if source == state != target}
    return into, out


def growth(ways: dict[tuple[int, int], Node], state: int) -> int:
    """By how many characters all ways grow without this state."""
    into, out = around(ways, state)
    loop = size(ways.get((state, state), EMPTY))
    written = sum(map(size, into.values())) * (len(out) - 1) + sum(map(size, out.values())) * (len(into) - 1)
    return written + loop * (len(into) * len(out) - 1)


def widened(one: Node, other: Node) -> Node:
    if isinstance(one, Chars) and isinstance(other, Chars):
        return Chars(union(one.ranges, other.ranges))
    return Alt((*_options(one), *_options(other)))


def _options(node: Node) -> tuple[Node, ...]:
    return node.options if isinstance(node, Alt) else (node,)


def sequence(*nodes: Node) -> Node:
    parts = [part for node in nodes for part in (node.parts if isinstance(node, Seq) else (node,))]
    return parts[0] if len(parts) == 1 else Seq(tuple(parts))
