"""Numbers around the bounds of a schema, on every backend: what is accepted is inside, however it is spelled."""

import itertools
import json
import math

import pytest
from constrained import backend, ids_of
from grammar_cases.json_check import JsonCheck
from grammar_cases.refusals import EMPTY
from samples import sampled

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.grammar.backends import BACKENDS
from ramet.runtime.grammar.base import GrammarError

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
