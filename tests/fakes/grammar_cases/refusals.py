"""Whether a schema may be refused: only for a keyword in it, or a shape, that stands on a list and is named."""

import json
import re
from collections.abc import Mapping
from typing import Any

from ramet.runtime.grammar.base import BackendName, GrammarError
from ramet.runtime.grammar.keywords import UNSUPPORTED

EVERYWHERE = {
    "oneOf": "options that may overlap",
    "pattern": "lookaround, references, boundaries inside",
    "patternProperties": "lookaround, references, boundaries inside",
    "format": "formats that are not among FORMATS",
    "$ref": "schemas elsewhere, and circles",
}
WRITTEN_OUT = {  # where a schema becomes rules or a regular expression
    "minProperties": "beside optional properties",
    "maxProperties": "beside optional properties",
    "patternProperties": "more than one pattern, or beside other properties",
    "minLength": "beside a pattern or a format",
    "maxLength": "beside a pattern or a format",
}
PARTLY: Mapping[BackendName, Mapping[str, str]] = {  # what is refused of a keyword that is not on UNSUPPORTED
    "llguidance": {
        "minProperties": "beside optional properties",
        "maxProperties": "beside optional properties",
        "patternProperties": "patterns that share a name, or for whose properties nothing is valid",
        "multipleOf": "steps of many digits",
        "const": "control characters",
        "enum": "control characters",
    },
    "xgrammar": WRITTEN_OUT,
    "outlines": WRITTEN_OUT,
}
SHAPES: Mapping[BackendName, tuple[str, ...]] = {  # what is refused of a schema as a whole
    "llguidance": (),
    "xgrammar": (),
    "outlines": ("allows any value", "has no type", "refers to itself, or is too large"),
}
EMPTY = re.compile("nothing|[Uu]nsatisfiable")  # of schemas that nothing is valid for


def rightful(error: GrammarError, schema: Any, backend: BackendName) -> bool:
    listed = UNSUPPORTED[backend] | EVERYWHERE.keys() | PARTLY[backend].keys()
    # at the end of the place of what is wrong, or between the words that say what is
    named = (rf"(?:^|[/\s'])({re.escape(keyword)})(?:[:\s']|$)" for keyword in listed & keys(schema))
    if any(re.search(pattern, error.fact) for pattern in named) or any(
        shape in error.fact for shape in SHAPES[backend]
    ):
        return True
    return EMPTY.search(error.fact) is not None and "false" in json.dumps(schema)


def keys(value: Any) -> set[str]:
    """Every key of every object in it."""
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set().union(*map(keys, value)) if isinstance(value, list) else set()
