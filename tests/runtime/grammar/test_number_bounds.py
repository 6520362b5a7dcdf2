"""Numbers around the bounds of a schema, on every backend: what is accepted is inside, however it is spelled."""

import itertools
import json
import math
from decimal import Decimal, localcontext

import pytest
from constrained import backend, compiled, ids_of, takes
from grammar_cases.json_check import JsonCheck
from grammar_cases.refusals import EMPTY
from samples import sampled

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.grammar.backends import BACKENDS
from ramet.runtime.grammar.base import BackendName, GrammarError

BOUNDS = (-10, -1, -0.5, -0.05, 0, 0.05, 0.5, 1, 7, 9.5, 10, 99, 100, 101.25, 1000)
TEXTS = (
    "-0", "-0.0", "-0.00", "0", "0.0", "0.00", "-0e0", "0e5", "1", "-1", "1.0", "-1.0", "1e0", "1E1", "10", "10.0",
    "1e1", "-10", "-10.0", "9", "9.5", "9.49", "9.50", "9.51", "0.5", "0.50", "0.49", "0.499999", "0.05", "0.0500",
    "0.051", "0.049", "-0.05", "-0.5", "-0.51", "-0.050", "-0.049", "99", "99.0", "99.9", "100", "100.0", "100.01",
    "101.25", "101.2500", "101.26", "101.24", "1000", "999", "999.99", "1000.0", "1000.001", "1001", "-100", "-11",
    "01", "00", ".5", "5.", "+1", "-01", "7", "7.0", "6.99", "7.01", "8",
)  # fmt: skip


def schemas() -> list[str]:
    """Every pair of bounds with a number between, each inclusive or exclusive, and each bound alone."""
    lows = [{}, *({keyword: bound} for bound in BOUNDS for keyword in ("minimum", "exclusiveMinimum"))]
    highs = [{}, *({keyword: bound} for bound in BOUNDS for keyword in ("maximum", "exclusiveMaximum"))]
    return [
        json.dumps({"type": kind, **low, **high})
        for kind in ("integer", "number")
        for low, high in itertools.product(lows, highs)
        if not low or not high or _between(kind, *low.values(), *high.values())
    ]


def _between(kind: str, low: float, high: float) -> bool:
    return low < math.floor(high) and math.ceil(low) < high if kind == "integer" else low < high


def _is_empty(schema: str) -> bool:
    """The bounds of integers have none between them."""
    check, integers = JsonCheck(schema), range(-11, 1002)
    return '"integer"' in schema and all(check.fault(str(number)) is not None for number in integers)


SCHEMAS = schemas()
PARTS = 10
each_part = pytest.mark.parametrize(
    ("name", "part"), [case for name in BACKENDS for case in sampled([(name, part) for part in range(PARTS)], 1)]
)


@each_part
def test_numbers_are_inside_their_bounds(name, part):
    outside = []
    for schema in SCHEMAS[part::PARTS]:
        check = JsonCheck(schema)
        try:
            ready = backend(name).load(backend(name).prepare(Constraint(ConstraintKind.JSON_SCHEMA, schema), "compact"))
        except GrammarError as error:
            assert _is_empty(schema) and EMPTY.search(error.fact), f"{schema}: {error.fact}"
            continue
        for text in TEXTS:
            grammar = ready.start()
            if all(map(grammar.accept, ids_of(text))) and grammar.may_end and check.fault(text) is not None:
                outside.append(f"{schema}: {text}")
    assert not outside, "\n".join(outside)


LONG = "0.3000000000000000444089209850062616169452667236328125"  # what a double makes of 0.30000000000000004
LONGS = ("0.1" + "0" * 30 + "1", LONG, "-" + LONG, "0.99999999999999999999", "1e-40", "-1234567.00000000000000000001")


def neighbours(text: str) -> list[str]:
    """A number, some that differ in its last digits, and the doubles on its sides."""
    number = Decimal(text)
    last = Decimal(1).scaleb(int(number.as_tuple().exponent))
    with localcontext(prec=100):
        near = [number + step * last for step in (Decimal(-1), Decimal("-0.1"), Decimal(0), Decimal("0.1"), Decimal(1))]
    doubles = [math.nextafter(float(text), side) for side in (-math.inf, math.inf)]
    return [f"{each:f}" for each in [*near, *map(Decimal, map(repr, doubles)), Decimal(repr(float(text)))]]


@pytest.mark.parametrize("name", ["xgrammar", "outlines"])
def test_bounds_that_a_double_rounds_are_exact(name: BackendName) -> None:
    compare = {"minimum": "__ge__", "exclusiveMinimum": "__gt__", "maximum": "__le__", "exclusiveMaximum": "__lt__"}
    for keyword, bound in itertools.product(compare, LONGS):
        ready = compiled(name, ConstraintKind.JSON_SCHEMA, f'{{"type": "number", "{keyword}": {bound}}}', "compact")
        for text in neighbours(bound):
            grammar = ready.start()
            taken = all(map(grammar.accept, ids_of(text))) and grammar.may_end
            assert taken == getattr(Decimal(text), compare[keyword])(Decimal(bound)), (keyword, bound, text)


@pytest.mark.parametrize("name", BACKENDS)
def test_bounds_of_integers_that_a_double_rounds_are_exact(name: BackendName) -> None:
    schema = '{"type": "integer", "minimum": 3.00000000000000000001, "exclusiveMaximum": 7.00000000000000000001}'
    ready = compiled(name, ConstraintKind.JSON_SCHEMA, schema)
    assert [number for number in range(10) if takes(ready, str(number))] == [4, 5, 6, 7]


@pytest.mark.parametrize("name", ["xgrammar", "outlines"])
def test_two_bounds_that_are_one_double_are_two(name: BackendName) -> None:
    for order in (1, -1):
        low, high = ("0.1", "0.10000000000000000001")[::order]
        schema = f'{{"type": "number", "allOf": [{{"minimum": {low}}}, {{"minimum": {high}}}], "maximum": 1}}'
        ready = compiled(name, ConstraintKind.JSON_SCHEMA, schema)
        assert takes(ready, "0.10000000000000000001") and not takes(ready, "0.1")
    options = '{"oneOf": [{"maximum": 0.10000000000000000001}, {"exclusiveMinimum": 0.1}], "type": "number"}'
    with pytest.raises(GrammarError, match="its options may overlap"):
        compiled(name, ConstraintKind.JSON_SCHEMA, options)


@pytest.mark.parametrize(
    ("name", "keyword", "number", "fact"),
    [
        ("llguidance", "maximum", LONG, f"#/maximum has the number {LONG}, which a double rounds"),
        ("llguidance", "multipleOf", "0.10000000000000000001", "#/multipleOf has the number 0.1000.*, which a double"),
        ("xgrammar", "minimum", f"0.{'3' * 65}", "#/minimum has the number 0.3+..., at most 64 decimal places are"),
        ("llguidance", "multipleOf", "1e-99999999999999999999", "#/multipleOf is 0.0, must be a number in"),
        ("xgrammar", "const", "1e-99999999999999999999", "#/const has the number 1e-9.*, which a double rounds"),
        ("outlines", "minimum", "1e-99999999999999999999", "#/minimum has the number 1e-9.*, at most 64 decimal"),
    ],
)
def test_what_is_not_exact_is_refused_by_name(name: BackendName, keyword: str, number: str, fact: str) -> None:
    with pytest.raises(GrammarError, match=fact):
        compiled(name, ConstraintKind.JSON_SCHEMA, f'{{"type": "number", "{keyword}": {number}}}')
