"""What clients write of the form of an output, checked and made one Constraint. Nothing is compiled here.

Decides what is refused before anything is sent: size, nesting, text that is no JSON, NUL, more than one constraint.
Knows no field but those that /generate has as well.
"""

from collections.abc import Callable
from typing import Any

import orjson
from msgspec.structs import replace

from ramet.ipc.params import shown
from ramet.ipc.spec import Constraint, ConstraintKind, RequestSpec, Whitespace
from ramet.runtime import exact_json
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import unreadable
from ramet.runtime.intake.body_items import nests_deeper
from ramet.runtime.intake.limits import MAX_CHOICES, MAX_CONSTRAINT_BYTES, MAX_DEPTH
from ramet.runtime.intake.parsers.structure import exactly
from ramet.runtime.intake.prompts import check_most

NUL = "\\u0000"  # as JSON escapes it


def given(read: Callable[[str, Any], Constraint], place: str, value: Any) -> list[Constraint]:
    """That of a field, if it asks for one."""
    return [] if value is None or value == "" else [read(place, value)]


def only_one(found: list[Constraint], backend: str | None, whitespace: Whitespace | None = None) -> Constraint | None:
    """The one that is asked for. Raises ClientError for a second one. `whitespace`: of the JSON in it."""
    if len(found) > 1:
        first, second = found[0].place, found[1].place
        raise ClientError(second, f"is set, but so is {first}: an output keeps to one of them", "omit one of them")
    if not found:
        return None
    has_json = found[0].kind in (ConstraintKind.JSON_SCHEMA, ConstraintKind.STRUCTURAL_TAG)
    return replace(found[0], backend=backend or "", whitespace=whitespace or "" if has_json else "")


# -- of one field ------------------------------------------------------------------------------------------------------


def of_pattern(place: str, pattern: str) -> Constraint:
    _check_text(place, pattern)
    return Constraint(ConstraintKind.REGEX, pattern, place)


def of_grammar(place: str, grammar: str) -> Constraint:
    _check_text(place, grammar)
    return Constraint(ConstraintKind.EBNF, grammar, place)


def of_schema(place: str, schema: str | dict[str, Any] | bool) -> Constraint:
    """A JSON schema, with its keys in the client's order: that of the output's properties."""
    text, value = _read_json(place, schema)
    if not isinstance(value, dict | bool):
        raise ClientError(place, f"is {shown(schema)}, must be a JSON schema: an object, true or false")
    return Constraint(ConstraintKind.JSON_SCHEMA, text, place)


def of_tag(place: str, tag: str | dict[str, Any]) -> Constraint:
    """A structural tag: xgrammar's format, or the older one with `structures` and `triggers`."""
    text, value = _read_json(place, tag)
    if not isinstance(value, dict) or not ("format" in value or value.keys() >= {"structures", "triggers"}):
        fact = "must be a JSON object with `format`, or `structures` and `triggers`"
        raise ClientError(place, f"is {shown(exact_json.read_members(tag))}, {fact}")
    return Constraint(ConstraintKind.STRUCTURAL_TAG, text, place)


def of_choices(place: str, choices: list[str]) -> Constraint:
    """The output is one of these texts."""
    check_most(place, "choices", len(choices), MAX_CHOICES)
    if not choices:
        raise ClientError(place, "is [], must not be empty: at least one entry")
    first = dict[str, int]()
    for i, choice in enumerate(choices):
        if not choice:
            raise ClientError(f"{place}[{i}]", "is '', must not be empty")
        if first.setdefault(choice, i) != i:
            raise ClientError(f"{place}[{i}]", f"is {shown(choice)}, as {place}[{first[choice]}] is: they must differ")
    return of_pattern(place, "|".join(map(exactly, choices)))


READERS: dict[str, Callable[[str, Any], Constraint]] = {
    "json_schema": of_schema,
    "regex": of_pattern,
    "ebnf": of_grammar,
    "structural_tag": of_tag,
}


# -- checks ------------------------------------------------------------------------------------------------------------


def _read_json(place: str, given: Any) -> tuple[str, Any]:
    """The JSON text of what may be such a text already, and its value."""
    ordinary = None if isinstance(given, str) else exact_json.ordinary(given)
    text = ordinary or (given if isinstance(given, str) else _written(place, given))
    _check_text(place, text)
    try:
        value = given if ordinary else orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise unreadable.of_text(place, shown(given), error) from None
    if nests_deeper(MAX_DEPTH, text.encode()):
        raise ClientError(place, f"is nested deeper than {MAX_DEPTH} levels")
    if NUL in text and NUL in text.replace("\\\\", "_"):  # one whose backslash is not escaped itself
        raise ClientError(place, "has a NUL character")
    return text, value


def _written(place: str, value: Any) -> str:
    """Of a value of a body, or of a program, which may hold what is no JSON."""
    try:
        return exact_json.compact(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ClientError(place, f"is {shown(value)}, which cannot be written as JSON: {error}") from None


def _check_text(place: str, text: str) -> None:
    if len(text) > MAX_CONSTRAINT_BYTES:
        raise _too_long(place, len(text))
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ClientError(place, "has half a surrogate pair, must be valid Unicode") from None
    if size > MAX_CONSTRAINT_BYTES:
        raise _too_long(place, size)
    if "\0" in text:
        raise ClientError(place, "has a NUL character")


def _too_long(place: str, size: int) -> ClientError:
    return ClientError(place, f"has {size} bytes, must have at most {MAX_CONSTRAINT_BYTES}")


# -- of a request ------------------------------------------------------------------------------------------------------


def beginning_after(spec: RequestSpec, text: str, opens: str = "") -> RequestSpec:
    """Its constraint, if it has one, begins after this text of the output. `opens`: if the output begins with this."""
    if spec.constraint is None:
        return spec
    return replace(spec, constraint=replace(spec.constraint, after=text, opens=opens))
