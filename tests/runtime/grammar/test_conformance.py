"""Random outputs of a random model under made constraints: what ends keeps to them, what does not end still could.

The checks know nothing of our grammars: a JSON schema validator, `re`, and an Earley recogniser. `make test` runs a
tenth of the cases, `make test-slow` all of them.
"""

import json
from functools import cache

import pytest
from grammar_cases.case import Case
from grammar_cases.conformance import Tally, judged
from grammar_cases.grammars import grammar_cases
from grammar_cases.random_model import RandomModel
from grammar_cases.refusals import rightful, rightful_of_regex
from grammar_cases.regexes import regex_cases
from grammar_cases.schemas import schema_cases, tricky_cases
from grammar_cases.vocabularies import bundled, multi_byte
from samples import slow

from ramet.runtime.grammar.backends import BACKENDS, build
from ramet.runtime.grammar.base import BackendName, GrammarBackend, GrammarError

PARTS = 10
WITHOUT_GRAMMARS = {"outlines"}
MIN_FINISHED = 0.75  # of all outputs: below it, outputs that never end would go unseen
each_part = pytest.mark.parametrize(
    ("name", "part", "count"),
    [case for name in BACKENDS for case in [(name, 0, 100), *(slow((name, k, 200)) for k in range(PARTS))]],
)


@cache
def players(name: BackendName) -> list[tuple[GrammarBackend, RandomModel]]:
    """The backend on each vocabulary, and a random model with it."""
    vocabularies = (bundled(), multi_byte())
    return [(build(name, vocabulary), RandomModel(vocabulary)) for vocabulary in vocabularies]


def tally_of(name: BackendName, cases: list[Case]) -> Tally:
    """Every second case on each vocabulary."""
    whole = Tally()
    for index, (backend, model) in enumerate(players(name)):
        whole.add(judged(backend, model, cases[index::2]))
    print(name, whole)
    return whole


@each_part
def test_outputs_keep_to_schemas(name, part, count):
    tally = tally_of(name, list(schema_cases(seed=part, count=count)))
    assert not tally.wrong, "\n".join(tally.wrong)
    refused = [(case.name, error.fact) for case, error in tally.refused if not _rightly(case, error, name)]
    assert not refused, "\n".join(map(str, refused))
    assert tally.share_finished > MIN_FINISHED


@pytest.mark.parametrize("name", BACKENDS)
def test_outputs_keep_to_schemas_whose_keywords_meet(name):
    tally = tally_of(name, list(tricky_cases(count=4)))
    assert not tally.wrong, "\n".join(tally.wrong)
    refused = [(case.name, error.fact) for case, error in tally.refused if not _rightly(case, error, name)]
    assert not refused, "\n".join(map(str, refused))


@each_part
def test_outputs_keep_to_regexes(name, part, count):
    tally = tally_of(name, list(regex_cases(seed=part, count=count // 4)))
    assert not tally.wrong, "\n".join(tally.wrong)
    assert [case.name for case, error in tally.refused if not rightful_of_regex(error, name)] == []
    assert tally.share_finished > MIN_FINISHED


@each_part
def test_outputs_keep_to_grammars(name, part, count):
    tally = tally_of(name, list(grammar_cases(seed=part, count=count // 40)))
    assert not tally.wrong, "\n".join(tally.wrong)
    assert len(tally.refused) == (count // 40 if name in WITHOUT_GRAMMARS else 0)


def _rightly(case: Case, error: GrammarError, name: BackendName) -> bool:
    return rightful(error, json.loads(case.constraint.text), name)
