"""Runs of characters as one lexeme each, where llguidance's greedy lexer cannot go wrong with them.

Character by character, each byte of each token of the vocabulary is a step of its parser: with 128,000 tokens the mask
of `[^"]*` passes its limits. A run may be one lexeme when nothing else that may stand at the same place shares a
character with it. Which places those are is answered by an automaton that forgets who called a rule: it has too many
of them at worst.
"""

from functools import partial

from ramet.runtime.grammar.charsets import Ranges, intersection
from ramet.runtime.grammar.regex import quantifier, write_chars
from ramet.runtime.grammar.tree import (
    EMPTY,
    Alt,
    Chars,
    Embedded,
    Free,
    Node,
    Ref,
    Repeat,
    Rules,
    Seq,
    mapped,
    optional,
    settle,
    walk,
)

MAX_PLACES = 600
MAX_UNROLLED = 8
MAX_STEPS = 200_000  # pairs of places that are looked at; some 100 ms

Place = int
Ends = tuple[frozenset[Place], frozenset[Place], bool]  # first places, last places, whether it may be empty
NO_ENDS: Ends = (frozenset(), frozenset(), True)


def with_runs(rules: Rules) -> Rules:
    """The same language, with runs in place of repeated characters where that is safe."""
    if sum(1 for node in rules.values() for _ in walk(node)) > 10 * MAX_PLACES:
        return rules
    rules = {name: unrolled(node) for name, node in rules.items()}
    places = LexemePlaces(rules)
    safe = places.safe_runs()
    return {name: places.rewritten(name, node, safe) for name, node in rules.items()} if safe else rules


def unrolled(node: Node) -> Node:
    """Short repetitions written out: the automaton does not count."""
    match node:
        case Repeat(Chars() as part, least, int() as most) if most <= MAX_UNROLLED:
            tail: Node = EMPTY
            for _ in range(most - least):
                tail = optional(Seq((part, tail)))
            return Seq((*[part] * least, tail))
        case Free():
            return node
        case _:
            return mapped(node, unrolled)


class LexemePlaces:
    """The places of a grammar where one character stands, and which of them may follow each other."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.chars: list[Ranges] = []  # of each place; () for what is no character
        self.follow: list[set[Place]] = []
        self.returns: list[int] = []
        self.numbered: dict[tuple[str, int], Place] = {}  # by rule and by order within it
        self.ends: dict[str, Ends] = dict.fromkeys(rules, (frozenset(), frozenset(), False))
        settle(rules, self.changes)
        # once more, now that the edges between rules are known; how often a place follows itself
        self.returns = [0] * len(self.chars)
        for name in rules:
            self.changes(name)

    def changes(self, name: str) -> bool:
        """Whether the ends of a rule are others than they were."""
        self.rule, self.count = name, 0
        before, self.ends[name] = self.ends[name], self.visit(self.rules[name])
        return before != self.ends[name]

    def place(self, ranges: Ranges) -> Place:
        key = (self.rule, self.count)
        self.count += 1
        if key not in self.numbered:
            self.numbered[key] = len(self.chars)
            self.chars.append(ranges)
            self.follow.append(set())
            self.returns.append(0)
        return self.numbered[key]

    def visit(self, node: Node) -> Ends:
        match node:
            case Ref(name):
                return self.ends[name]
            case Alt(options):
                found = [self.visit(option) for option in options]
                return (
                    frozenset().union(*(ends[0] for ends in found)),
                    frozenset().union(*(ends[1] for ends in found)),
                    any(ends[2] for ends in found),
                )
            case Seq(parts):
                first, last, empty = NO_ENDS
                for part in parts:
                    its_first, its_last, its_empty = self.visit(part)
                    self.join(last, its_first)
                    first = first | its_first if empty else first
                    last = last | its_last if its_empty else its_last
                    empty = empty and its_empty
                return first, last, empty
            case Repeat(part, least, most):
                first, last, empty = self.visit(part)
                if most is None or most > 1:
                    self.join(last, first)
                return first, last, empty or least == 0
            case Free(triggers, ends):
                text = frozenset([self.place(())])
                for _, after in triggers:
                    first, last, empty = self.visit(after)
                    self.join(text, first)
                    self.join(last, text)
                found = [self.visit(after) for _, after in ends]
                for first, _, _ in found:
                    self.join(text, first)
                return text, frozenset().union(text, *(last for _, last, _ in found)), False
            case _:
                single = frozenset([self.place(node.ranges if isinstance(node, Chars) else ())])
                return single, single, False

    def join(self, last: frozenset[Place], first: frozenset[Place]) -> None:
        for place in last:
            self.follow[place] |= first
        for place in last & first:
            self.returns[place] += 1

    def safe_runs(self) -> set[Place]:
        """Places that follow themselves once, and share no character with any other that may stand where they do.

        Twice is as in `[ab]+ [ab]+` by one rule: where the first run ends is then for the parser to say.
        """
        if len(self.chars) > MAX_PLACES:
            return set()
        candidates = {place for place, times in enumerate(self.returns) if times == 1 and self.chars[place]}
        first = self.ends["root"][0]
        pending = [(p, q) for p in first for q in first if p <= q]
        seen = set(pending)
        steps = 0
        while pending and candidates:
            p, q = pending.pop()
            if p != q and not intersection(self.chars[p], self.chars[q]):
                continue
            if p != q:
                candidates -= {p, q}
            for a in self.follow[p]:
                for b in self.follow[q]:
                    pair = (a, b) if a <= b else (b, a)
                    if pair not in seen:
                        seen.add(pair)
                        pending.append(pair)
            steps += len(self.follow[p]) * len(self.follow[q])
            if steps > MAX_STEPS:
                return set()
        return candidates

    def rewritten(self, name: str, node: Node, safe: set[Place]) -> Node:
        self.rule, self.count = name, 0
        return self.rewrite(node, safe)

    def rewrite(self, node: Node, safe: set[Place]) -> Node:
        match node:
            case Repeat(Chars(ranges), least, most) if most is None or most > 1:
                if self.place(ranges) not in safe:
                    return node
                run = Embedded(f"/{write_chars(ranges)}{quantifier(max(1, least), most)}/")
                return run if least else optional(run)
            case Repeat(Alt(options), least, None) if least <= 1:
                return Repeat(Alt(tuple(self.rewrite_option(option, safe) for option in options)), least, None)
        self.count += not isinstance(node, Repeat | Alt | Seq | Ref)  # else it has no place of its own
        return mapped(node, partial(self.rewrite, safe=safe))

    def rewrite_option(self, option: Node, safe: set[Place]) -> Node:
        """One of those that are repeated without bounds: a character of it may as well be many."""
        if isinstance(option, Chars):
            return Embedded(f"/{write_chars(option.ranges)}+/") if self.place(option.ranges) in safe else option
        return self.rewrite(option, safe)
