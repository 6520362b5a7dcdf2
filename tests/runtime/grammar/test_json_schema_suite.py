"""The JSON-Schema-Test-Suite on every backend, token by token.

No invalid instance of an accepted schema is an output, however it is spelled. A valid one is, in one of its spellings,
or grammar_cases/limits.py says why not.
"""

from functools import cache

import pytest
from constrained import backend, bytewise, ids_of
from grammar_cases.limits import ASSERTED, narrower
from grammar_cases.refusals import rightful
from grammar_cases.suite import Group, groups, spellings
from samples import sampled

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.grammar.backends import BACKENDS
from ramet.runtime.grammar.base import BackendName, CompiledConstraint, GrammarError

PARTS = 10
each_part = pytest.mark.parametrize(
    ("name", "part"), [case for name in BACKENDS for case in sampled([(name, part) for part in range(PARTS)], 1)]
)


@cache
def compiled(name: BackendName, part: int) -> list[tuple[Group, CompiledConstraint | GrammarError]]:
    return [(group, _compiled(name, group)) for group in groups()[part::PARTS]]


def _compiled(name: BackendName, group: Group) -> CompiledConstraint | GrammarError:
    constraint = Constraint(ConstraintKind.JSON_SCHEMA, group.text)
    try:
        return backend(name).load(backend(name).prepare(constraint, "single-space"))
    except GrammarError as error:
        return error


def accepted(ready: CompiledConstraint, text: str) -> bool:
    """As the tokenizer cuts it, or byte by byte."""
    for tokens in (ids_of(text), bytewise(text)):
        grammar = ready.start()
        if all(map(grammar.accept, tokens)) and grammar.may_end:
            return True
    return False


@each_part
def test_no_invalid_instance_is_an_output(name, part):
    found = [
        f"{group.name}: {shown}: {text}"
        for group, ready in compiled(name, part)
        if not isinstance(ready, GrammarError)
        for shown, instance, valid in group.tests
        if not valid
        for text in spellings(instance)
        if accepted(ready, text)
    ]
    assert not found, "\n".join(found)


@each_part
def test_valid_instances_are_outputs_but_for_the_limits(name, part):
    limits = narrower(name)
    found = {
        f"{group.file}: {group.description}: {shown}"
        for group, ready in compiled(name, part)
        if not isinstance(ready, GrammarError)
        for shown, instance, valid in group.tests
        if valid and not any(accepted(ready, text) for text in spellings(instance))
    }
    assert {test for test in found if not test.startswith(ASSERTED)} == limits & _tried(name, part)


def _tried(name: BackendName, part: int) -> set[str]:
    return {
        f"{group.file}: {group.description}: {shown}"
        for group, ready in compiled(name, part)
        if not isinstance(ready, GrammarError)
        for shown, _, _ in group.tests
    }


@each_part
def test_refusals_name_a_keyword_of_the_list(name, part):
    wrong = [
        f"{group.name}: {ready.fact}"
        for group, ready in compiled(name, part)
        if isinstance(ready, GrammarError) and not rightful(ready, group.schema, name)
    ]
    assert not wrong, "\n".join(wrong)
