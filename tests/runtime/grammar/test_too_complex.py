"""Constraints within all limits that llguidance cannot keep to: refused where that shows before anything is chosen."""

import json

import pytest
from constrained import backend, compiled, ids_of

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.grammar.base import GrammarError

EBNF, SCHEMA = ConstraintKind.EBNF, ConstraintKind.JSON_SCHEMA
# the ignored space wins against the one in `greet`, so nothing but spaces may follow `hi`, for ever
GREETING = 'start: greet\ngreet: "hi" " " NAME\nNAME: /[A-Z][a-z]+/\n%ignore / /'


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (EBNF, GREETING),
        (EBNF, 'root ::= "ab"{100000}'),
        (EBNF, "root ::= " + " | ".join(f'"w{i}x"' for i in range(9000))),
        (SCHEMA, json.dumps({"type": "array", "items": {"const": 1}, "minItems": 100_000})),
    ],
)
def test_what_is_too_complex_in_each_of_its_outputs_is_refused(kind: ConstraintKind, text: str) -> None:
    with pytest.raises(GrammarError, match=r"cannot be begun: before anything is chosen it became too complex: .+"):
        backend("llguidance").prepare(Constraint(kind, text), "single-space")


def test_what_is_ignored_may_stand_where_the_grammar_has_no_text_for_it() -> None:
    ready = compiled("llguidance", EBNF, GREETING.replace('" " ', ""))
    for text in ("hiBob", "hi Bob"):
        grammar = ready.start()
        assert all(map(grammar.accept, ids_of(text))) and grammar.may_end, text


def test_a_long_text_without_a_choice_is_an_output() -> None:
    grammar = compiled("llguidance", EBNF, 'root ::= "ab"{8000}').start()
    while forced := grammar.forced():
        assert all(map(grammar.accept, forced))
    assert grammar.may_end
