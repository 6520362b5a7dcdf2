"""Whether a schema may be refused: only for a keyword in it that stands on the backend's list, and that is named."""

import json
import re
from typing import Any

from ramet.runtime.grammar.base import BackendName, GrammarError
from ramet.runtime.grammar.keywords import UNSUPPORTED

PARTLY = {"oneOf", "minProperties", "maxProperties", "patternProperties", "multipleOf", "pattern", "format", "$ref"}
EMPTY = ("nothing", "Unsatisfiable")  # of schemas that nothing is valid for
PLACE = re.compile(r"#\S*")  # a pointer, whose parts may be called like keywords


def rightful(error: GrammarError, schema: Any, backend: BackendName) -> bool:
    words = set(re.findall(r"\$?\w+", PLACE.sub("", error.fact.replace("min/max", "min"))))
    named = words & (UNSUPPORTED[backend] | PARTLY) & keys(schema)
    return bool(named) or (bool(words & set(EMPTY)) and "false" in json.dumps(schema))


def keys(value: Any) -> set[str]:
    """Every key of every object in it."""
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set().union(*map(keys, value)) if isinstance(value, list) else set()
