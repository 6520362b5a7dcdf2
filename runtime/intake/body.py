"""A request's body: bytes -> a JSON object -> a typed struct, or what is wrong, too large, too deep or not built."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar

import msgspec
import orjson
from msgspec import Struct, inspect
from msgspec.structs import fields

from ramet.ipc.params import quoted, shown
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import json_pieces, unreadable
from ramet.runtime.intake.body_items import Bytes, ItemCount, nests_deeper
from ramet.runtime.intake.exact_fields import with_exact_numbers
from ramet.runtime.intake.fields import Unbuilt
from ramet.runtime.intake.limits import MAX_DEPTH, MAX_SEQUENCES
from ramet.runtime.intake.misspelt import ALIKE, CLOSE, CONSTRAINTS, UNKNOWN, UNREAD, Unknown, meant, refuse_misspelt

M = TypeVar("M")
T = TypeVar("T", bound=Struct)


def made_of(make: Callable[[dict[str, Any]], M], data: Bytes, max_items: int, in_pieces: bool = True) -> M:
    """What `make` makes of a body as a JSON object, in which are not too many things. Raises ClientError, and what
    `make` raises.

    `max_items`: as ItemCount's `most`. `in_pieces`: no call of the parser keeps Python's lock for long, which takes up
    to twice as long in all.
    """
    counted = ItemCount(max_items)
    counted.add(data)
    counted.check(data)
    return make(parse_object(data, counted, in_pieces))


def parse_object(data: Bytes, counted: ItemCount, in_pieces: bool = True) -> dict[str, Any]:
    """`counted`: of the same bytes, and checked. `in_pieces`: as `made_of`'s.

    Of a key that is there twice the last value counts. NaN, Infinity and numbers beyond float64 are refused
    (unreadable.py). Raises ClientError.
    """
    try:
        value = json_pieces.loads(data, counted.num_marks) if in_pieces else orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise unreadable.of_body(error, data) from None
    if not isinstance(value, dict):
        raise ClientError("body", f"is {shown(value)}, must be a JSON object")
    if counted.num_opened > MAX_DEPTH and nests_deeper(MAX_DEPTH, data):
        raise ClientError("body", f"is nested deeper than {MAX_DEPTH} levels")
    return with_exact_numbers(value, data, counted.most_exact)


def convert(value: dict[str, Any], type_: type[T]) -> T:
    """The object as a struct; unknown keys are ignored, but not nearly those of constraints, nor those of a struct that
    forbids them, as those of commands do: half of a command is another command.

    Raises ClientError for what is wrong or not built.
    """
    try:
        made = msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise _explained(value, type_, error) from None
    if isinstance(made, Struct) and (unknown := _unknown(value, made)):
        refuse_misspelt(unknown)
    return made


def _unknown(written: dict[str, Any], made: Struct, place: str = "") -> list[Unknown]:
    """Names without a meaning that ask for something."""
    found, names = list[Unknown](), written.keys() - _names(type(made))
    if names and (asking := {name for name in names if written[name] not in (None, "")}):
        found.append(Unknown(place, asking, type(made)))
    inner = getattr(made, "sampling_params", None)
    if isinstance(inner, Struct):
        found += _unknown(written["sampling_params"], inner, "sampling_params.")
    elif isinstance(inner, list):
        for i, (one, given) in enumerate(zip(inner, written["sampling_params"], strict=True)):
            if isinstance(one, Struct) and not given.keys() <= _names(type(one)):  # one glance: there may be thousands
                found += _unknown(given, one, f"sampling_params[{i}].")
    return found


@cache
def _names(type_: type[Struct]) -> frozenset[str]:
    return frozenset(field.encode_name for field in fields(type_))


# -- what is wrong, in words -------------------------------------------------------------------------------------------


def _explained(value: Any, type_: Any, error: msgspec.ValidationError) -> ClientError:
    """What msgspec says of a wrong body: with the place, the value there, and all that would be valid."""
    text = str(error)
    if " - at `key` in " in text:  # of a program: JSON has no other keys
        path = text.partition(" - at `key` in `$")[2].removesuffix("`")
        found, _ = _spot(value, type_, _steps(path))
        wrong = next(key for key in found if not isinstance(key, str))
        return ClientError(path.removeprefix(".") or "body", f"has the key {shown(wrong)}, must have strings as keys")
    what, _, path = text.rpartition(" - at `$") if " - at `$" in text else (text, "", "")
    steps = _steps(path)
    missing = re.match(r"Object missing required field `(.+)`", what)
    if missing:
        steps.append(missing[1])
    found, kinds = _spot(value, type_, steps)
    place = "".join(step if step[0] == "[" else f".{step}" for step in steps).removeprefix(".")
    if unknown := re.match("Object contains unknown field `(.+)`", what):
        known = [field.encode_name for kind in kinds if isinstance(kind, inspect.StructType) for field in kind.fields]
        constrains = CONSTRAINTS.intersection(known)
        instead = meant(unknown[1], known, CLOSE if constrains else ALIKE)
        fact = UNKNOWN if constrains else UNREAD
        return ClientError(f"{place}.{unknown[1]}".removeprefix("."), fact, f"send {instead}" if instead else "omit it")
    if isinstance(error.__cause__, FieldRefusal):
        return error.__cause__.at(place, found)
    place = place or "body"
    if missing:
        named = kinds and isinstance(kinds[0], inspect.LiteralType)
        return ClientError(place, f"is missing, must be {_wanted(kinds)}" if named else "is missing")
    if not what.startswith(("Expected", "Invalid", "Integer", "Number")) or not kinds:
        return ClientError(place, what)
    if " of length " not in what:
        return ClientError(place, f"is {shown(found)}, must be {_wanted(kinds)}")
    if not found:
        entry = ": at least one entry" if isinstance(found, list) else ""
        return ClientError(place, f"is {shown(found)}, must not be empty{entry}")
    sized, unit = (inspect.StrType, "characters") if isinstance(found, str) else (inspect.ListType, "entries")
    kinds = [kind for kind in kinds if isinstance(_bare(kind), sized)]
    return ClientError(place, f"has {len(found)} {unit}, must be {_wanted(kinds)}")


def _steps(path: str) -> list[str]:
    """Names and indices."""
    return re.findall(r"[^.\[\]`]+|\[\d+\]", path)


def _bare(kind: inspect.Type) -> inspect.Type:
    return kind.type if isinstance(kind, inspect.Metadata) else kind


def _spot(value: Any, type_: Any, steps: list[str]) -> tuple[Any, list[inspect.Type]]:
    """A place in a body: what stands there, and what may."""
    kinds = list(_kinds(inspect.type_info(type_)))
    for step in steps:
        if step[0] == "[":
            lists = [kind for kind in map(_bare, kinds) if isinstance(kind, inspect.ListType)]
            kinds = [inner for kind in lists for inner in _kinds(kind.item_type)]
            value = list(value)[int(step[1:-1])]  # of a set as well, which counts as a list
        else:
            kinds = _of_field(kinds, value, step)
            value = value.get(step)
    return value, kinds


def _of_field(kinds: list[inspect.Type], value: Any, name: str) -> list[inspect.Type]:
    """What the field may be in those structs that the object can be."""
    structs = [kind for kind in kinds if isinstance(kind, inspect.StructType)]
    if any(kind.tag_field == name for kind in structs):
        return [inspect.LiteralType(tuple(kind.tag for kind in structs if not issubclass(kind.cls, UnbuiltType)))]
    meant = [kind for kind in structs if kind.tag_field is None or value.get(kind.tag_field) == kind.tag]
    found = [field.type for kind in meant for field in kind.fields if field.encode_name == name]
    return [inner for each in found for inner in _kinds(each)]


def _kinds(node: inspect.Type) -> Iterator[inspect.Type]:
    """The types that a value may have, out of unions and annotations."""
    match node:
        case inspect.Metadata(inner, extra=extra):
            yield from [node] if extra and "words" in extra else _kinds(inner)
        case inspect.UnionType(types):
            for each in types:
                yield from _kinds(each)
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
            return (
                "a string" + _size(low, high, "characters") + (f" matching regex {quoted(pattern)}" if pattern else "")
            )
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


# -- fields that are refused -------------------------------------------------------------------------------------------


class FieldRefusal(ValueError):
    """What a struct raises about its field `name` while it is decoded: msgspec adds where the struct stands."""

    def __init__(self, name: str, fact: str, hint: str = "", code: str = "") -> None:
        super().__init__()
        self._name, self._fact, self._hint, self._code = name, fact, hint, code

    def at(self, place: str, written: dict[str, Any]) -> ClientError:
        """`written`: the struct as the client wrote it."""
        place = place if self._name == "type" else f"{place}.{self._name}".removeprefix(".")
        return ClientError(place, self._fact.format(shown(written[self._name])), self._hint, code=self._code)


class Checked(Struct, frozen=True):
    """Base of every struct with marked fields."""

    def __post_init__(self) -> None:
        for name, mark in _marks(type(self)):
            value = getattr(self, name)
            if value is None:
                continue
            items = value if isinstance(value, list) else [value]
            if len(items) > MAX_SEQUENCES:
                raise FieldRefusal(name, f"has {len(items)} entries, must have at most {MAX_SEQUENCES}")
            # with types: 0 and false are equal to Python, but not to a client
            taken = [(type(each), each) for each in (None, *mark.neutral)]
            if any((type(item), item) not in taken for item in items):
                raise FieldRefusal(name, f"is {{}}, {mark.fact}", mark.hint, mark.code)


@cache
def _marks(type_: type[Struct]) -> list[tuple[str, Unbuilt]]:
    metas = [(field.name, meta) for field in fields(type_) for meta in getattr(field.type, "__metadata__", ())]
    return [(name, meta.extra["unbuilt"]) for name, meta in metas if "unbuilt" in (meta.extra or {})]


class UnbuiltType(Struct, frozen=True, tag_field="type"):
    """Base of what is known by its type alone, as a file in a message, and refused until it is built."""

    def __post_init__(self) -> None:
        raise FieldRefusal("type", "is of type {}, but this feature is not built yet")
