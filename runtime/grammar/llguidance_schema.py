"""A schema in words that llguidance reads rightly.

Beside a bound below one it lets an excluded zero in, so zero is excluded by a least number. A name that a pattern takes
from `additionalProperties`, and for which nothing is valid, could be begun there and never ended: that is refused.
"""

import re
from collections.abc import Callable
from typing import Any

from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.json_schema import Document

LEAST = 1e-9  # numbers between this and an excluded zero are not written
COMMON = ("$defs", "definitions")
UNWRITABLE = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")  # without \u, which strings may not have


def written(document: Document, is_possible: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """CHANGES the document. `is_possible`: whether something is valid for a schema. Raises GrammarError."""
    shared = {keyword: document.root[keyword] for keyword in COMMON if keyword in document.root}
    for place, schema in document.places.items():
        if isinstance(schema, dict):
            exclude_zero(schema)
            for keyword in ("const", "enum"):
                check_constant(schema.get(keyword), f"{place}/{keyword}")
            if schema.get("additionalProperties") is not False:
                for inner in schema.get("patternProperties", {}).values():
                    if not is_possible({**shared, "allOf": [inner]}):
                        fact = "llguidance does not enforce a pattern for whose properties nothing is valid"
                        raise GrammarError(f"{place}/patternProperties: {fact}")
    return document.root


def exclude_zero(schema: dict[str, Any]) -> None:
    if schema.get("exclusiveMinimum") == 0:
        del schema["exclusiveMinimum"]
        schema["minimum"] = max(schema.get("minimum", LEAST), LEAST)
    if schema.get("exclusiveMaximum") == 0:
        del schema["exclusiveMaximum"]
        schema["maximum"] = min(schema.get("maximum", -LEAST), -LEAST)


def check_constant(value: Any, place: str) -> None:
    match value:
        case dict():
            for name, inner in value.items():
                check_constant(name, place)
                check_constant(inner, place)
        case list():
            for inner in value:
                check_constant(inner, place)
        case str() if UNWRITABLE.search(value):
            raise GrammarError(f"{place} has {value!r}: llguidance does not write its control character")
