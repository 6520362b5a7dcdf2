"""A schema that is accepted can be kept to: its outputs do not fail later."""

import json

import pytest
from constrained import allowed, compiled, ids_of

from ramet.ipc.spec import ConstraintKind
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.json_schema import MAX_OPTIONAL


def schema(num_optional: int) -> str:
    return json.dumps({"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(num_optional)}})


def test_as_many_optional_properties_as_are_allowed_can_be_written() -> None:
    grammar = compiled("llguidance", ConstraintKind.JSON_SCHEMA, schema(MAX_OPTIONAL)).start()
    for token in ids_of('{"p3": 1, "p399": 2}'):
        assert token in allowed(grammar)
        assert grammar.accept(token)
    assert grammar.may_end


def test_more_of_them_are_refused() -> None:
    with pytest.raises(GrammarError, match=f"more than {MAX_OPTIONAL}"):
        compiled("llguidance", ConstraintKind.JSON_SCHEMA, schema(MAX_OPTIONAL + 1))
