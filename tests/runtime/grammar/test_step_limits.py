"""The limit on an output's work in the decode loop: far more than schemas need, but short for any grammar."""

import json
import time
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from constrained import SIZE, backend, bytewise, ids_of
from grammar_cases.suite import Group, groups, spellings
from grammar_cases.vocabularies import bundled as vocabulary
from msgspec.structs import replace
from samples import sampled

from ramet.bench.constrained_cases import cases
from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.config import GrammarArgs
from ramet.runtime.grammar.backends import build
from ramet.runtime.grammar.base import BackendName, Grammar, GrammarBackend, GrammarError, TooComplex
from scripts.structured_examples import EXAMPLES, WEATHER, Example

EBNF, REGEX, SCHEMA = ConstraintKind.EBNF, ConstraintKind.REGEX, ConstraintKind.JSON_SCHEMA
STEP_ITEMS = GrammarArgs().grammar_step_items
TOKEN_S = 0.1  # processor time; the slowest token takes 15 ms
PARTS = 10


@cache
def limited(step_items: int) -> GrammarBackend:
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


def nodes(num: int) -> str:
    """A nullable value in objects of such values: several readings of the same text."""
    node = {"$ref": "#/$defs/n"}
    objects = [{"type": "object", "properties": {"a": node, f"b{i}": node}, "additionalProperties": node}
               for i in range(num)]  # fmt: skip
    return json.dumps({**node, "$defs": {"n": {"anyOf": [*objects, {"type": "null"}]}}})


def schema(**keywords: Any) -> tuple[ConstraintKind, str]:
    return SCHEMA, json.dumps(keywords)


def any_of(options: list[dict[str, Any]]) -> tuple[ConstraintKind, str]:
    return schema(anyOf=options)


TEXT, NULLABLE = {"type": "string"}, {"type": ["string", "null"]}
PATTERNS = ("(a|b)*a(a|b){9}", "(a|b)*b(a|b){8}", "^.*x.*y.*z.*$")
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
    "recursive unions": (SCHEMA, nodes(2)),
    "more recursive unions": (SCHEMA, nodes(6)),
    "equal options": any_of([{}, {"type": "object"}, {"type": "array"}, {"type": "string"}] * 6),
    "many objects": any_of(
        [
            {
                "type": "object",
                "properties": {"a": TEXT, f"k{i}": TEXT},
                "required": ["a", f"k{i}"],
                "additionalProperties": False,
            }
            for i in range(60)
        ]
    ),
    "patterns": any_of([TEXT | {"pattern": each} for each in PATTERNS]),
    "optional properties": schema(type="object", properties={f"p{i}": NULLABLE for i in range(12)}),
    "numbers": schema(type="array", items={"anyOf": [{"type": "integer", "minimum": i} for i in range(40)]}),
    "enum": schema(enum=[f"w{i}" for i in range(1000)]),
    "long string": schema(type="string", minLength=200, maxLength=5000),
    "long array": schema(type="array", items={"type": "integer"}, maxItems=2000),
    "loops that match nothing": (REGEX, "((a*)*|b*|)*c"),
    "optional counts": (REGEX, "(((a?){9}){9})?"),
    "any text": (REGEX, ".*.*.*.*x"),
    "characters": (REGEX, ".{0,500}"),
}


CHEAP = ["nested quantifiers", "alternatives", "long count", "reference chain"]  # to compile for the other libraries
OTHERS = [
    (name, case)
    for case, (kind, _) in ADVERSARIAL.items()
    for name in ("xgrammar", "outlines")
    if kind is not EBNF and case not in CHEAP and (name, case) != ("outlines", "doubling unions")  # it has no end
]
CASES = [*product(("xgrammar", "outlines"), CHEAP), *sampled(OTHERS, 2, seed=3)]


@pytest.mark.parametrize(("name", "case"), [*product(["llguidance"], ADVERSARIAL), *CASES])
def test_a_token_in_the_decode_loop_takes_little_of_any_grammar(name: BackendName, case: str) -> None:
    kind, text = ADVERSARIAL[case]
    library = limited(STEP_ITEMS) if name == "llguidance" else backend(name)
    assert kind not in library.unbounded
    try:
        loaded = library.load(backend(name).prepare(Constraint(kind, text), "single-space"))
        grammar = loaded.start()
    except GrammarError:
        return  # it is refused, or parsed aside from its beginning
    taken = seconds_of_tokens(grammar)
    for _ in range(2):  # a collection, or what else the machine does, makes a token of one run take longer
        if max(taken) >= TOKEN_S:
            taken = [min(both) for both in zip(taken, seconds_of_tokens(loaded.start()), strict=True)]
    assert max(taken) < TOKEN_S


def seconds_of_tokens(grammar: Grammar) -> list[float]:
    """What a mask, a token and forced text together take, for each of 250 tokens drawn at random."""
    draw, taken = np.random.default_rng(1), [0.0]
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
            return [*taken, time.thread_time() - begun]
        taken.append(time.thread_time() - begun)
    return taken


# -- what people ask for -----------------------------------------------------------------------------------------------


def asked_for(example: Example) -> Constraint | None:
    """The constraint of an example of the page, if it is not made of tools."""
    match example.constraint:
        case {"regex": pattern}:
            return Constraint(REGEX, pattern)
        case {"ebnf": grammar}:
            return Constraint(EBNF, grammar)
        case {"structural_tag": tag}:
            return Constraint(ConstraintKind.STRUCTURAL_TAG, json.dumps(tag))
        case {"structured_outputs": {"choice": choices}}:
            return Constraint(REGEX, "|".join(choices))
        case {"structured_outputs": {"json": schema}}:
            return Constraint(SCHEMA, json.dumps(schema), whitespace="flexible")
        case {"response_format": {"json_schema": {"schema": schema}}}:
            return Constraint(SCHEMA, json.dumps(schema))
        case {"response_format": {"type": "json_object"}}:
            return Constraint(SCHEMA, '{"type": "object"}')
    return None


def usual() -> dict[str, Constraint]:
    """Of the page's examples, the measured cases, and the arguments of the page's tool."""
    found = {each.title: asked_for(each) for each in EXAMPLES}
    weather = {"A call that is required": Constraint(SCHEMA, json.dumps(WEATHER["function"]["parameters"]))}
    measured = {
        f"{case.name}, {whitespace}": replace(case.constraint, whitespace=whitespace)
        for whitespace in ("single-space", "flexible")
        for case in cases(whitespace).values()
    }
    return {name: each for name, each in {**found, **measured, **weather}.items() if each is not None}


USUAL = usual()


def test_every_example_of_the_page_is_among_those_that_are_tried() -> None:
    assert {each.title for each in EXAMPLES} <= USUAL.keys()


@pytest.mark.parametrize("name", sampled(USUAL, 8))
def test_what_people_ask_for_needs_a_tenth_of_the_default_at_most(name: str) -> None:
    constraint = USUAL[name]
    whitespace = constraint.whitespace or "single-space"
    grammar = limited(STEP_ITEMS // 10).load(backend("llguidance").prepare(constraint, whitespace)).start()
    bits, draw, ends = np.zeros(-(-SIZE // 32), np.int32), np.random.default_rng(1), vocabulary().eos_ids
    for _ in range(250):
        grammar.fill_mask(bits)
        legal = np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))
        legal = legal[~np.isin(legal, list(ends))]
        if not len(legal):
            break
        assert grammar.accept(int(draw.choice(legal)))
