"""What the conformance tests lean on: the checks tell right from wrong, and a wrong backend is found out."""

import json
import re
from dataclasses import replace
from itertools import product
from re._parser import parse  # type: ignore[import-not-found]  # knows the fewest characters of a match

import pytest
from grammar_cases import formats
from grammar_cases.conformance import judged
from grammar_cases.earley import Earley
from grammar_cases.grammars import Chars, grammar_cases
from grammar_cases.json_check import JsonCheck
from grammar_cases.random_model import RandomModel
from grammar_cases.regexes import regex_cases
from grammar_cases.schemas import schema_cases
from grammar_cases.suite import groups
from grammar_cases.vocabularies import bundled

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.grammar.backends import build

A, B, LEFT, RIGHT = (Chars(character * 2) for character in "ab()")


@pytest.mark.parametrize("make", [schema_cases, regex_cases, grammar_cases])
def test_the_shortest_output_keeps_to_its_constraint(make):
    assert [(case.name, case.fault(case.shortest)) for case in make(0, 60) if case.fault(case.shortest)] == []


def test_nothing_shorter_matches_a_regex():
    """The budget of an output is four times the shortest: a longer one would let more outputs finish."""
    cases = list(regex_cases(0, 200))
    assert [len(case.shortest) for case in cases] == [parse(case.constraint.text).getwidth()[0] for case in cases]


@pytest.mark.parametrize("make", [schema_cases, regex_cases, grammar_cases])
def test_a_seed_makes_the_same_cases_each_time(make):
    first, again, other = (list(make(seed, 10)) for seed in (3, 3, 4))
    assert [case.constraint for case in first] == [case.constraint for case in again]
    assert [case.constraint for case in first] != [case.constraint for case in other]


def test_the_validator_answers_as_the_test_suite_does():
    wrong = []
    for group in groups():
        remote = "localhost" in group.text or group.file in ("refRemote", "dynamicRef")
        unchecked = group.file.startswith("optional/") and group.file.split("/")[-1] not in formats.CHECKS
        if remote or unchecked or group.file == "format":  # the last: formats that only inform
            continue
        check = JsonCheck(group.text)
        for shown, instance, valid in group.tests:
            fault = check.fault(json.dumps(instance))
            if valid != (fault is None or fault.startswith("properties are out of order")):
                wrong.append(f"{group.name}: {shown}: {fault}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": 1, "b": 2}', None),
        ('{"b": 2, "a": 1}', "order"),
        ('{"a":1, "b": 2}', "white space"),
        ('{"a": 1,  "b": 2}', "white space"),
        ('{"a": 1, "b": 2} ', "white space"),
        ('{"a": 1, "b": 2, "b": "x"}', "invalid"),
        ('{"a": 1, "b": "x", "b": 2}', "invalid"),
        ('{"a": 0.30000000000000000001, "b": 2}', "invalid"),
        ('{"a": NaN, "b": 2}', "no JSON"),
        ('{"a": 1, "b": 2', "no JSON"),
    ],
)
def test_the_check_of_json_finds(text, fault):
    schema = '{"properties": {"a": {"type": "number", "multipleOf": 0.1}, "b": {"type": "integer"}}, "required": ["a"]}'
    found = JsonCheck(schema).fault(text)
    assert found is None if fault is None else fault in found


def test_patterns_are_read_as_json_schema_does():
    check = JsonCheck(r'{"type": "string", "pattern": "^\\d+$"}')
    assert check.fault('"12"') is None
    assert check.fault(r'"12\n"') is not None
    assert check.fault('"١٢"') is not None


def test_earley_agrees_with_re_on_a_regular_language():
    """root = (a | ab)* b?, with an empty alternative, against `re` on every text of up to six characters."""
    rules = {"root": [["many", "last"]], "many": [[], ["many", A], ["many", A, B]], "last": [[], [B]]}
    earley, pattern = Earley(rules, "root"), re.compile("(a|ab)*b?")
    for length in range(7):
        for text in map("".join, product("ab", repeat=length)):
            assert earley.accepts(text) == (pattern.fullmatch(text) is not None), text


def test_earley_counts_parentheses():
    earley = Earley({"root": [["root", "root"], [LEFT, "root", RIGHT], []]}, "root")
    assert all(map(earley.accepts, ("", "()", "(())()")))
    assert not any(map(earley.accepts, ("(", ")", "(()", "())")))
    assert earley.begins("(()(")
    assert not earley.begins("())")


@pytest.mark.parametrize(
    ("weaker", "asked"),
    [
        ('{"type": "integer"}', '{"type": "integer", "minimum": 50}'),
        ('{"type": "array", "items": {"type": "null"}, "maxItems": 3}', '{"type": "array", "items": false}'),
        ('{"type": "string"}', '{"type": "string", "maxLength": 2}'),
    ],
)
def test_a_backend_that_ignores_a_keyword_is_found_out(weaker, asked):
    model = RandomModel(bundled())
    case = replace(next(schema_cases(0, 1)), shortest="null", fault=JsonCheck(asked).fault)
    case = replace(case, constraint=Constraint(ConstraintKind.JSON_SCHEMA, weaker))
    assert judged(build("llguidance", bundled()), model, [case] * 20).wrong
