"""A schema in words that llguidance reads rightly.

Beside a bound below one it lets an excluded zero in, so zero is excluded by a least number. A name that a pattern takes
from `additionalProperties`, and for which nothing is valid, could be begun there and never ended: that is refused.

The library's refusals name no place: it is the innermost schema that is refused by itself.
"""

import json
import re
from collections.abc import Callable
from functools import cached_property
from typing import Any
from urllib.parse import quote

from ramet.ipc.params import quoted
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.json_schema import SchemaDocument, pointer_part
from ramet.runtime.grammar.lark import in_one_line

MIN_NUMBER = 1e-9  # numbers between this and an excluded zero are not written
PLACED = " while processing json-schema:"  # behind it the library names a place, but not of this schema
REFERENCE = '"$ref"'
WHOLE = "whole"
MOVED = f"#/$defs/{WHOLE}"
OF_PROPERTIES = frozenset({"minProperties", "maxProperties", "patternProperties"})  # which the library enforces in part
UNWRITABLE = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")  # without \u, which strings may not have


def written(document: SchemaDocument, is_possible: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """CHANGES the document. `is_possible`: whether something is valid for a schema. Raises GrammarError."""
    parts = SchemaParts(document)
    for place, schema in document.places.items():
        if isinstance(schema, dict):
            exclude_zero(schema)
            for keyword in ("const", "enum"):
                check_constant(schema.get(keyword), f"{place}/{keyword}")
            if schema.get("additionalProperties") is not False:
                for pattern in schema.get("patternProperties", {}):
                    if not is_possible(parts.alone(f"{place}/patternProperties/{pointer_part(pattern)}")):
                        fact = "llguidance does not enforce a pattern for whose properties nothing is valid"
                        raise GrammarError(f"{place}/patternProperties: {fact}")
    return document.root


def refusal(message: str) -> GrammarError | None:
    """Of what the library says of a grammar; None: it compiles."""
    if "patternProperty" in message:
        return GrammarError("has patternProperties: llguidance enforces only patterns that share no name")
    if "min/maxProperties" in message:
        fact = "has minProperties or maxProperties beside properties that may be left out"
        return GrammarError(f"{fact}: llguidance does not enforce that")
    if message and not message.startswith("WARNING"):
        return GrammarError(f"cannot be compiled: {in_one_line(message).partition(PLACED)[0]}")
    return None


def check_places(document: SchemaDocument, validate: Callable[[dict[str, Any]], str]) -> None:
    """Raises GrammarError with the place of what the library refuses, if it refuses the document as `written`."""
    parts = SchemaParts(document)

    def refused(place: str) -> GrammarError | None:
        if not isinstance(document.places[place], dict):
            return None
        return refusal(validate(parts.alone(place)))

    for place, schema in reversed(document.places.items()):
        error = refused(place) if isinstance(schema, dict) and not OF_PROPERTIES.isdisjoint(schema) else None
        if error is not None and any(keyword in error.fact for keyword in OF_PROPERTIES):
            raise GrammarError(f"{place}: {error.fact}")
    place, found = "#", refused("#")
    while found is not None:
        inner = next(((below, error) for below in needed(document, place) if (error := refused(below))), None)
        if inner is None:
            raise GrammarError(f"{place}: {found.fact}")
        place, found = inner


class SchemaParts:
    """The schemas inside of one, each as a schema by itself, whose references lead where they did."""

    def __init__(self, document: SchemaDocument) -> None:
        self._document = document

    def alone(self, place: str) -> dict[str, Any]:
        """The one of this place. The others are with it if it has a reference, for there may be thousands."""
        schema = self._document.places[place]
        if REFERENCE not in json.dumps(schema):
            return {"allOf": [schema]}
        return {"$defs": {WHOLE: self._whole}, "$ref": MOVED + quote(place[1:], safe="/~")}

    @cached_property
    def _whole(self) -> Any:
        return _moved(self._document.root)


def _moved(schema: Any) -> Any:
    """A copy whose references lead to where it stands in `$defs`."""
    if isinstance(schema, dict):
        return {
            name: f"{MOVED}{value[1:]}" if name == "$ref" and isinstance(value, str) else _moved(value)
            for name, value in schema.items()
        }
    return [_moved(value) for value in schema] if isinstance(schema, list) else schema


def needed(document: SchemaDocument, place: str) -> list[str]:
    """The schemas in that of `place` without which it has no value."""
    schema = document.places[place]
    assert isinstance(schema, dict), place
    names = [f"properties/{pointer_part(name)}" for name in schema.get("required", [])]
    parts = [f"{keyword}/{i}" for keyword in ("allOf", "prefixItems") for i in range(len(schema.get(keyword, [])))]
    places = [f"{place}/{part}" for part in [*names, *parts, "items"]]
    return [each for each in places if each in document.places]


def exclude_zero(schema: dict[str, Any]) -> None:
    if schema.get("exclusiveMinimum") == 0:
        del schema["exclusiveMinimum"]
        schema["minimum"] = max(schema.get("minimum", MIN_NUMBER), MIN_NUMBER)
    if schema.get("exclusiveMaximum") == 0:
        del schema["exclusiveMaximum"]
        schema["maximum"] = min(schema.get("maximum", -MIN_NUMBER), -MIN_NUMBER)


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
            raise GrammarError(f"{place} has {quoted(value)}: llguidance does not write its control character")
