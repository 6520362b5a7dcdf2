"""Reads a JSON schema before any backend sees it: well-formed, bounded, and without what the backend cannot enforce.

What it returns has no annotations and no unknown keywords; `format` and `pattern` have become patterns of whole strings
in the dialect that every backend reads alike.
"""

import json
import math
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from string import printable
from typing import Any, NoReturn
from urllib.parse import quote

from ramet.ipc.params import quoted
from ramet.runtime.grammar import references, regex
from ramet.runtime.grammar.base import BackendName, GrammarError
from ramet.runtime.grammar.formats import FORMATS
from ramet.runtime.grammar.keywords import ANNOTATIONS, KEYWORDS, SHAPES, TYPES, UNSUPPORTED
from ramet.runtime.grammar.one_of import Disjoint
from ramet.runtime.grammar.plain_schema import plain
from ramet.runtime.grammar.rounded import MAX_DIGITS, Rounded, exact, number_of

MAX_SCHEMA_BYTES = 1 << 20
MAX_DEPTH = 64  # of schemas in schemas
MAX_NESTING = 200  # of lists and objects
MAX_SCHEMAS = 20_000
MAX_COUNT = 100_000  # of characters, items or properties
# Any optional property may come next: each is four items of a parser's row, which has 2,000 at most.
MAX_OPTIONAL = 400
MAX_INTEGER = 2**53
KNOWN = sorted(KEYWORDS | ANNOTATIONS)

Schema = bool | dict[str, Any]


@dataclass(frozen=True, slots=True)
class SchemaDocument:
    """A schema as a backend may see it, and the schemas that its references lead to."""

    backend: BackendName
    root: dict[str, Any]
    targets: dict[str, Schema]
    places: dict[str, Schema]  # every schema in it


def read(text: str, backend: BackendName) -> SchemaDocument:
    """The schema in `text`. Raises GrammarError that names the place of what is wrong."""
    return read_value(parse(text), backend)


def read_value(value: Any, backend: BackendName) -> SchemaDocument:
    """A schema that is JSON already."""
    reader = SchemaReader(backend)
    try:
        schema = reader.schema(value, "#")
    except RecursionError as error:
        raise GrammarError(f"is a schema nested more than {MAX_NESTING} deep") from error
    targets = references.check(reader.places)
    disjoint = Disjoint(targets)
    for place, part in reader.places.items():
        if isinstance(part, dict) and "oneOf" in part:
            replace_one_of(part, place, disjoint)
    if schema is False:
        raise GrammarError("is the schema false, which nothing is valid for")
    return SchemaDocument(backend, {} if schema is True else schema, targets, reader.places)


def parse(text: str) -> Any:
    num_bytes = len(text.encode("utf-8", "surrogatepass"))
    if num_bytes > MAX_SCHEMA_BYTES:
        raise GrammarError(f"is a schema of {num_bytes} bytes, at most {MAX_SCHEMA_BYTES} are allowed")
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=number_of)
    except RecursionError as error:
        raise GrammarError(f"is a schema nested more than {MAX_NESTING} deep") from error
    except ValueError as error:
        raise GrammarError(f"is not valid JSON: {error}") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


class SchemaReader:
    """One pass over a schema. `places` are the schemas in it by their JSON pointers."""

    def __init__(self, backend: BackendName) -> None:
        self.backend: BackendName = backend
        self.places: dict[str, Schema] = {}

    def schema(self, value: Any, place: str, depth: int = 0) -> Schema:
        if depth > MAX_DEPTH:
            raise GrammarError(f"is a schema nested more than {MAX_DEPTH} deep")
        if len(self.places) >= MAX_SCHEMAS:
            raise GrammarError(f"is a schema of more than {MAX_SCHEMAS} parts")
        if isinstance(value, bool):
            self.places[place] = value
            return value
        if not isinstance(value, dict):
            raise GrammarError(f"{place} is {_kind(value)}, must be a schema: an object, true or false")
        value = plain(value)
        if isinstance(value, bool):
            self.places[place] = value
            return value
        read: dict[str, Any] = {}
        self.places[place] = read
        for keyword, inner in value.items():
            if not self.ignored(keyword, inner, place):
                read[keyword] = self.keyword(keyword, inner, f"{place}/{pointer_part(keyword)}", depth)
        if len(read.get("properties", {}).keys() - {*read.get("required", ())}) > MAX_OPTIONAL:
            raise GrammarError(
                f"{place}/properties has more than {MAX_OPTIONAL} that are not required", "split the object"
            )
        exact_bounds(read, place, self.backend)
        return lowered(read, place)

    def ignored(self, keyword: str, value: Any, place: str) -> bool:
        """It says nothing about what is valid. Raises GrammarError for what the backend cannot enforce."""
        if keyword in ANNOTATIONS or keyword.startswith("x-"):
            return True
        if keyword in ("$id", "id") and place == "#":
            return True
        if keyword not in SHAPES:
            raise GrammarError(f"{place} has the unknown keyword {quoted(keyword)}", hint=_meant(keyword))
        if keyword == "uniqueItems" and value is False:
            return True
        if keyword in UNSUPPORTED[self.backend]:
            raise GrammarError(f"{place}/{pointer_part(keyword)}: {self.backend} does not enforce {quoted(keyword)}")
        return False

    def keyword(self, keyword: str, value: Any, place: str, depth: int) -> Any:
        match SHAPES[keyword], value:
            case "schema", list() if keyword == "items":  # before the draft of 2020, when prefixItems was called so
                place = f"{place.removesuffix('items')}prefixItems"
                return [self.schema(inner, f"{place}/{i}", depth + 1) for i, inner in enumerate(value)]
            case "schema", _:
                return self.schema(value, place, depth + 1)
            case "schemas", [_, *_]:
                return [self.schema(inner, f"{place}/{i}", depth + 1) for i, inner in enumerate(value)]
            case "map of schemas", dict():
                if keyword == "patternProperties":
                    value = {self.pattern(name, place): inner for name, inner in value.items()}
                return {n: self.schema(v, f"{place}/{pointer_part(n)}", depth + 1) for n, v in value.items()}
            case "count", _ if _is_integer(value) and 0 <= value <= MAX_COUNT:
                return int(value)
            case "number", int() | float() if _is_number(value):
                return value
            case "positive number", int() | float() if _is_number(value) and value > 0:
                return value
            case "pattern", str():
                return self.pattern(value, place)
            case "string", str() if keyword == "$ref":
                return quote(value, safe=printable)  # libraries read no other characters in a reference
            case "string", str():
                return value
            case "names", list() if all(isinstance(name, str) for name in value) and len({*value}) == len(value):
                return value
            case "type", str() if value in TYPES:
                return value
            case "type", [_, *_] if all(name in TYPES for name in value) and len({*value}) == len(value):
                return value
            case "values", [_, *_]:
                return [self.value(inner, place) for inner in value]
            case "value", _:
                return self.value(value, place)
        raise GrammarError(f"{place} is {_kind(value)}, must be {EXPECTED[SHAPES[keyword]]}")

    def pattern(self, pattern: str, place: str) -> str:
        """Anchored at both ends, in the dialect of every backend."""
        try:
            return f"^(?:{regex.write(regex.found_within(pattern))})$"
        except GrammarError as error:
            raise GrammarError(f"{place} {error.fact}") from error

    def value(self, value: Any, place: str) -> Any:
        """A value that an output may have to be."""
        match value:
            case dict():
                for name, inner in value.items():
                    self.value(name, place)
                    self.value(inner, place)
            case list():
                for inner in value:
                    self.value(inner, place)
            case str():
                if any("\ud800" <= c <= "\udfff" for c in value):
                    raise GrammarError(f"{place} has half a surrogate pair")
            case int() | float() if not isinstance(value, bool) and not _is_number(value):
                raise GrammarError(f"{place} has the number {value}, at most {MAX_INTEGER} is enforced exactly")
            case Rounded():
                raise _rounds(place, value)
        return value


def exact_bounds(schema: dict[str, Any], place: str, backend: BackendName) -> None:
    """CHANGES bounds that a double rounds: those of integers become integers. Raises GrammarError for the others where
    the backend reads doubles.
    """
    for keyword, value in [(name, value) for name, value in schema.items() if isinstance(value, Rounded)]:
        if not value.has_few_digits:
            fact = f"{place}/{keyword} has the number {value.shown}, at most {MAX_DIGITS} decimal places are enforced"
            raise GrammarError(fact, "write fewer digits")
        if schema.get("type") == "integer" and keyword in INTEGER_BOUNDS:
            closed, rounds = INTEGER_BOUNDS[keyword]
            whole = rounds(exact(value))
            if exact(value) == whole or abs(whole) > MAX_INTEGER:
                raise GrammarError(f"{place}/{keyword} is {value.shown}, must be a number of at most {MAX_INTEGER}")
            del schema[keyword]
            schema[closed] = (max if rounds is math.ceil else min)(whole, schema.get(closed, whole))
        elif backend == "llguidance":
            raise _rounds(f"{place}/{keyword}", value)


INTEGER_BOUNDS = {
    "minimum": ("minimum", math.ceil),
    "exclusiveMinimum": ("minimum", math.ceil),
    "maximum": ("maximum", math.floor),
    "exclusiveMaximum": ("maximum", math.floor),
}


def _rounds(place: str, value: Rounded) -> GrammarError:
    return GrammarError(f"{place} has the number {value.shown}, which a double rounds", "write fewer digits")


def lowered(schema: dict[str, Any], place: str) -> dict[str, Any]:
    """Formats as patterns, lists of items as prefixItems."""
    least, num_named = schema.get("minProperties", 0), len(schema.get("required", ()))
    if least > num_named + 1:
        # no backend keeps an output from writing the same name twice, which would count as two
        fact = f"{place}/minProperties is {least}, at most {num_named + 1} is enforced: one more than `required` names"
        raise GrammarError(fact)
    format_name = schema.pop("format", None)
    if format_name is not None:
        if format_name not in FORMATS:
            raise GrammarError(
                f"{place}/format: the format {quoted(format_name)} is not enforced",
                hint=f"enforced are {', '.join(sorted(FORMATS))}",
            )
        pattern = format_pattern(format_name)
        if "pattern" in schema:
            schema.setdefault("allOf", []).append({"pattern": pattern})
        else:
            schema["pattern"] = pattern
    if isinstance(schema.get("items"), list):
        if "prefixItems" in schema:
            raise GrammarError(f"{place}/items is a list, must be a schema beside prefixItems")
        schema["prefixItems"] = schema.pop("items")
        if "additionalItems" in schema:
            schema["items"] = schema.pop("additionalItems")
    schema.pop("additionalItems", None)  # beside one schema for all items it says nothing
    return schema


@cache
def format_pattern(name: str) -> str:
    return f"^(?:{regex.normal_form(FORMATS[name])})$"


def replace_one_of(schema: dict[str, Any], place: str, disjoint: Disjoint) -> None:
    """Its options become those of `anyOf`."""
    if not disjoint.all(schema["oneOf"]):
        hint = "use anyOf, or give the options a required property with a different const in each"
        raise GrammarError(f"{place}/oneOf: its options may overlap, and no grammar backend can exclude that", hint)
    if "anyOf" in schema:
        schema["allOf"] = [*schema.get("allOf", ()), {"anyOf": schema.pop("oneOf")}]
        return
    ordered = [("anyOf" if keyword == "oneOf" else keyword, value) for keyword, value in schema.items()]
    schema.clear()
    schema.update(ordered)


def _meant(keyword: str) -> str:
    """Which keyword an unknown one may stand for."""
    if keyword == "nullable":
        return 'a value that may be null has "type": [..., "null"]'
    close = get_close_matches(keyword, KNOWN, n=1, cutoff=0.75)
    return f"did you mean {close[0]!r}?" if close else "keywords of your own begin with x-"


def pointer_part(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _is_number(value: Any) -> bool:
    """A number that a float and every library hold exactly."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and abs(value) <= MAX_INTEGER


def _is_integer(value: Any) -> bool:
    return _is_number(value) and value == int(value)


def _kind(value: Any) -> str:
    words = json.dumps(value)
    return words if len(words) <= 60 else f"{words[:60]}..."


EXPECTED = {
    "schema": "a schema",
    "schemas": "a list of schemas, and not an empty one",
    "map of schemas": "an object of schemas",
    "count": f"an integer in [0, {MAX_COUNT}]",
    "number": f"a number of at most {MAX_INTEGER}",
    "positive number": f"a number in (0, {MAX_INTEGER}]",
    "pattern": "a pattern",
    "string": "a string",
    "names": "a list of different strings",
    "flag": "true or false",
    "map of names": "an object of lists of strings",
    "map": "an object",
    "type": f"one of {', '.join(TYPES)}, or a list of different ones",
    "values": "a list of values, and not an empty one",
}
