"""The limit on an output's work in the decode loop: far more than schemas need, but short for any grammar."""

import json
import time
from functools import cache

import numpy as np
import pytest
from constrained import SIZE, backend, bytewise, ids_of
from grammar_cases.suite import Group, groups, spellings
from grammar_cases.vocabularies import bundled as vocabulary
from samples import sampled

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.config import GrammarArgs
from ramet.runtime.grammar.backends import build
from ramet.runtime.grammar.base import Backend, BackendName, Grammar, GrammarError, TooComplex

EBNF, REGEX, SCHEMA = ConstraintKind.EBNF, ConstraintKind.REGEX, ConstraintKind.JSON_SCHEMA
STEP_ITEMS = GrammarArgs().grammar_step_items
TOKEN_S = 0.1  # processor time; the slowest token takes 15 ms
PARTS = 10


@cache
def limited(step_items: int) -> Backend:
    return build("llguidance", vocabulary(), step_items)


def masks(grammar: Grammar, tokens: list[int]) -> int:
    """The number of masks filled while the grammar accepts `tokens`, up to the first that it refuses."""
    bits, num = np.zeros(-(-SIZE // 32), np.int32), 1
    grammar.fill_mask(bits)
    for token in tokens:
        if not grammar.accept(token):
            break
        grammar.fill_mask(bits)
        num += 1
    return num


def prepared(group: Group) -> bytes | None:
    try:
        return backend("llguidance").prepare(Constraint(SCHEMA, group.text), "single-space")
    except GrammarError:
        return None


@pytest.mark.parametrize("part", sampled(range(PARTS), 2))
def test_every_schema_of_the_suite_needs_a_tenth_of_the_default_at_most(part: int) -> None:
    num, too_complex = 0, list[str]()
    for group in groups()[part::PARTS]:
        if (data := prepared(group)) is None:
            continue
        try:
            ready = limited(STEP_ITEMS // 10).load(data)
            texts = [next(iter(spellings(instance))) for _, instance, valid in group.tests if valid]
            num += sum(masks(ready.start(), tokens) for text in texts for tokens in (ids_of(text), bytewise(text)))
        except TooComplex as error:
            too_complex.append(f"{group.name}: {error}")
    assert num > 200 and not too_complex, "\n".join(too_complex)


def chain(num: int) -> str:
    """A schema of objects that are nested by references."""
    defs = {f"d{i}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}, "required": ["a"],
                      "additionalProperties": False} for i in range(num)}  # fmt: skip
    return json.dumps({"$ref": "#/$defs/d0", "$defs": {**defs, f"d{num}": {"type": "string"}}})


def doubling(num: int) -> str:
    """A schema with 2 ** num ways to read the same text."""
    defs = {f"d{i}": {"anyOf": [{"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}, "minItems": least}
                                for least in (0, 1)]} for i in range(num)}  # fmt: skip
    return json.dumps({"$ref": "#/$defs/d0", "$defs": {**defs, f"d{num}": {"type": "string"}}})


ADVERSARIAL = {
    "ambiguous": (EBNF, "root ::= s\ns ::= s s s | s s | [a-z ]"),
    "left recursion": (EBNF, 'root ::= e\ne ::= e "+" e | e "*" e | e e | [a-z]'),
    "nullable": (EBNF, 'root ::= a\na ::= a a | b | ""\nb ::= a b a | [a-z ] | ""'),
    "late": (EBNF, 'root ::= s\ns ::= "a" s | "a" s s | "a" s s s | s "b" s | "b" | "c"'),
    "sequence": (EBNF, "root ::= " + " ".join(["w"] * 50) + "\nw ::= [a-z]*"),
    "nested quantifiers": (REGEX, "((([a-z ]+)+)+)+!"),
    "alternatives": (REGEX, "(a|a)*b"),
    "exponential automaton": (REGEX, "(a|b)*a(a|b){14}"),
    "long count": (REGEX, "[a-z]{1,5000}"),
    "counts": (REGEX, "([a-z]{1,40} ){1,40}"),
    "reference chain": (SCHEMA, chain(40)),
    "doubling unions": (SCHEMA, doubling(40)),
    "enum": (SCHEMA, json.dumps({"enum": [f"w{i}" for i in range(1000)]})),
    "long string": (SCHEMA, json.dumps({"type": "string", "minLength": 200, "maxLength": 5000})),
    "long array": (SCHEMA, json.dumps({"type": "array", "items": {"type": "integer"}, "maxItems": 2000})),
}


# the others these two refuse, or compile for seconds in a worker that has a timeout
SHORT = ["nested quantifiers", "alternatives", "long count", "reference chain"]


@pytest.mark.parametrize(
    ("name", "case"),
    [("llguidance", case) for case in ADVERSARIAL]
    + [(name, case) for name in ("xgrammar", "outlines") for case in SHORT],
)
def test_a_token_in_the_decode_loop_takes_little_of_any_grammar(name: BackendName, case: str) -> None:
    kind, text = ADVERSARIAL[case]
    library = limited(STEP_ITEMS) if name == "llguidance" else backend(name)
    assert kind not in library.unbounded
    try:
        grammar = library.load(backend(name).prepare(Constraint(kind, text), "single-space")).start()
    except GrammarError:
        return  # it is refused, or parsed aside from its beginning
    assert longest_token(grammar) < TOKEN_S


def longest_token(grammar: Grammar) -> float:
    """The most seconds for a mask, a token and forced text together, over 250 tokens drawn at random."""
    draw, longest = np.random.default_rng(1), 0.0
    bits, ends = np.zeros(-(-SIZE // 32), np.int32), vocabulary().eos_ids
    for _ in range(250):
        begun = time.thread_time()
        try:
            grammar.fill_mask(bits)
            legal = np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))
            legal = legal[~np.isin(legal, list(ends))]
            if not len(legal):
                break
            grammar.accept(int(draw.choice(legal)))
            grammar.forced_text()
            _ = grammar.must_end
        except TooComplex:
            return max(longest, time.thread_time() - begun)
        longest = max(longest, time.thread_time() - begun)
    return longest
