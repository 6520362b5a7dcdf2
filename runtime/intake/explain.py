"""What msgspec says of a wrong body, as a ClientError: the place, the value there, and all that would be valid."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.fields import Refused


def explained(value: Any, type_: Any, text: str) -> ClientError:
    """What msgspec says, with the value and all that would be valid."""
    what, _, path = text.rpartition(" - at `$") if " - at `$" in text else (text, "", "")
    steps = re.findall(r"[^.\[\]`]+|\[\d+\]", path)
    missing = re.match(r"Object missing required field `(.+)`", what)
    found, kinds = _spot(value, type_, [*steps, missing[1]] if missing else steps)
    place = "".join(step if step[0] == "[" else f".{step}" for step in steps).removeprefix(".")
    if missing:
        named = isinstance(kinds[0], inspect.LiteralType) if kinds else False
        fact = f"is missing, must be {_wanted(kinds)}" if named else "is missing"
        return ClientError(f"{place}.{missing[1]}".removeprefix("."), fact)
    if not what.startswith(("Expected", "Invalid", "Integer", "Number")) or not kinds:
        return ClientError(place or "body", what)
    of_length = " of length " in what
    if of_length and not found:
        entry = ": at least one entry" if isinstance(found, list) else ""
        return ClientError(place or "body", f"is {shown(found)}, must not be empty{entry}")
    if not of_length:
        return ClientError(place or "body", f"is {shown(found)}, must be {_wanted(kinds)}")
    sized, unit = (inspect.StrType, "characters") if isinstance(found, str) else (inspect.ListType, "entries")
    kinds = [kind for kind in kinds if isinstance(bare(kind), sized)]
    return ClientError(place or "body", f"has {len(found)} {unit}, must be {_wanted(kinds)}")


def bare(kind: inspect.Type) -> inspect.Type:
    return kind.type if isinstance(kind, inspect.Metadata) else kind


def _spot(value: Any, type_: Any, steps: list[str]) -> tuple[Any, list[inspect.Type]]:
    """A place in a body: what stands there, and what may."""
    kinds = list(kinds_of(inspect.type_info(type_)))
    for step in steps:
        if step[0] == "[":
            lists = [kind for kind in map(bare, kinds) if isinstance(kind, inspect.ListType)]
            kinds = [inner for kind in lists for inner in kinds_of(kind.item_type)]
            value = value[int(step[1:-1])]
        else:
            kinds = _of_field(kinds, value, step)
            value = value.get(step)
    return value, kinds


def _of_field(kinds: list[inspect.Type], value: Any, name: str) -> list[inspect.Type]:
    """What the field may be in those structs that the object can be."""
    structs = [kind for kind in kinds if isinstance(kind, inspect.StructType)]
    if any(kind.tag_field == name for kind in structs):
        return [inspect.LiteralType(tuple(kind.tag for kind in structs if not issubclass(kind.cls, Refused)))]
    meant = [kind for kind in structs if kind.tag_field is None or value.get(kind.tag_field) == kind.tag]
    found = [field.type for kind in meant for field in kind.fields if field.encode_name == name]
    return [inner for each in found for inner in kinds_of(each)]


def kinds_of(node: inspect.Type) -> Iterator[inspect.Type]:
    """The types that a value may have, out of unions and annotations."""
    match node:
        case inspect.Metadata(inner, extra=extra):
            yield from [node] if extra and "words" in extra else kinds_of(inner)
        case inspect.UnionType(types):
            for each in types:
                yield from kinds_of(each)
        case _:
            yield node


def _wanted(kinds: list[inspect.Type]) -> str:
    return " or ".join(dict.fromkeys(word for kind in kinds if (word := _word(kind))))


def _word(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata(extra={"words": str(words)}):
            return words
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType(values):
            return " or ".join(map(repr, values))
        case inspect.IntType(ge=low, le=high):
            return "an integer" + _range(low, high)
        case inspect.FloatType(ge=low, le=high):
            return "a number" + _range(low, high)
        case inspect.StrType(min_length=low, max_length=high, pattern=pattern):
            return "a string" + _size(low, high, "characters") + (f" matching regex {pattern!r}" if pattern else "")
        case inspect.ListType(min_length=low, max_length=high):
            return "a list" + _size(low, high, "entries")
        case inspect.StructType(fields=fields, tag_field=tag):
            names = [tag] if tag else [field.encode_name for field in fields if field.required]
            return "an object" + (f" with {', '.join(names)}" if names else "")
        case inspect.DictType():
            return "an object"
    return ""  # null goes without saying


def _range(low: float | None, high: float | None) -> str:
    if high is None:
        return "" if low is None else f" >= {low}"
    return f" in [{low}, {high}]"


def _size(low: int | None, high: int | None, unit: str) -> str:
    if high is None:
        return ""
    return f" of {low} to {high} {unit}" if low else f" of at most {high} {unit}"
