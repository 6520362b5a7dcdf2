"""Random small grammars: each backend takes exactly the texts that a recogniser by definition takes."""

import random
from functools import lru_cache
from itertools import product

import pytest
from constrained import bytewise, compiled
from samples import sampled

from ramet.ipc.spec import ConstraintKind
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.gbnf import read
from ramet.runtime.grammar.tree import Alt, Chars, Node, Ref, Repeat, Rules, Seq

ALPHABET = "abc"
TEXTS = ["".join(chars) for n in range(5) for chars in product(ALPHABET, repeat=n)]
NUM_GRAMMARS = 30


def random_rule(rng: random.Random, depth: int, names: list[str]) -> str:
    kind = rng.choice(["seq", "alt", "repeat", "class", "string", "ref"] if depth else ["class", "string", "ref"])
    match kind:
        case "seq":
            return " ".join(random_rule(rng, depth - 1, names) for _ in range(rng.randint(1, 3)))
        case "alt":
            return "(" + " | ".join(random_rule(rng, depth - 1, names) for _ in range(2)) + ")"
        case "repeat":
            return f"({random_rule(rng, depth - 1, names)}){rng.choice(['*', '+', '?', '{2}', '{1,3}', '{2,}'])}"
        case "class":
            return rng.choice(["[a]", "[ab]", "[bc]", "[^a]", "[a-c]*", "[ab]+", "[c]*"])
        case "string":
            return f'"{"".join(rng.choices(ALPHABET, k=rng.randint(1, 3)))}"'
    return rng.choice(names)


def random_grammar(seed: int) -> str | None:
    rng = random.Random(seed)
    names = ["root", "one", "two"]
    text = "\n".join(f"{name} ::= {random_rule(rng, 3, names[1:])}" for name in names)
    try:
        read(text)
    except GrammarError:
        return None
    return text


def lengths_taken(rules: Rules, text: str) -> bool:
    """Whether the whole text is derived: sets of ends, by the definition of each node, to a fixed point."""
    known: dict[tuple[str, int], frozenset[int]] = {}

    def ends(node: Node, start: int) -> frozenset[int]:
        match node:
            case Chars(ranges):
                fits = start < len(text) and any(a <= ord(text[start]) <= b for a, b in ranges)
                return frozenset([start + 1]) if fits else frozenset()
            case Seq(parts):
                found = frozenset([start])
                for part in parts:
                    found = frozenset(end for middle in found for end in ends(part, middle))
                return found
            case Alt(options):
                return frozenset(end for option in options for end in ends(option, start))
            case Repeat(part, least, most):
                found, reached = frozenset([start]), set()
                for count in range(len(text) + least + 1 if most is None else most + 1):
                    if count >= least:
                        reached |= found
                    found = frozenset(end for middle in found for end in ends(part, middle))
                return frozenset(reached)
            case Ref(name):
                return known.get((name, start), frozenset())
        raise AssertionError(node)

    while True:
        before = dict(known)
        for name, node in rules.items():
            for start in range(len(text) + 1):
                known[name, start] = ends(node, start)
        if known == before:
            return len(text) in known["root", 0]


GRAMMARS = [text for text in map(random_grammar, range(400)) if text is not None][:NUM_GRAMMARS]


@lru_cache(maxsize=NUM_GRAMMARS)
def language(grammar: str) -> frozenset[str]:
    rules = read(grammar)
    return frozenset(text for text in TEXTS if lengths_taken(rules, text))


@pytest.mark.parametrize("name", ["llguidance", "xgrammar"])
@pytest.mark.parametrize("grammar", sampled(GRAMMARS, len(GRAMMARS) // 2))
def test_the_language_is_the_grammars(name, grammar):
    ready = compiled(name, ConstraintKind.EBNF, grammar)

    def takes(text: str) -> bool:
        state = ready.start()
        return all(map(state.accept, bytewise(text))) and state.may_end

    assert {text for text in TEXTS if takes(text)} == language(grammar)
