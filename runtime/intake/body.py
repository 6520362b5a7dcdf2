"""A request's body: bytes -> a JSON object -> a typed struct. Refuses what is too large, too deep or not built."""

from functools import cache
from typing import Any, TypeVar

import msgspec
import orjson
from msgspec import Struct, inspect

from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.explain import bare, explained, kinds_of
from ramet.runtime.intake.fields import Refused, Unbuilt
from ramet.runtime.intake.limits import MAX_DEPTH, MAX_OPENED, MAX_SEQUENCES
from ramet.runtime.intake.prompts import check_most

T = TypeVar("T", bound=Struct)


def parse_object(data: bytes) -> dict[str, Any]:
    opened = data.count(b"[") + data.count(b"{")
    check_most("body", "opening brackets", opened, MAX_OPENED)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ClientError("body", f"is not valid JSON: {error.msg}{_near(data, error.pos)}") from None
    if not isinstance(value, dict):
        raise ClientError("body", f"is {shown(value)}, must be a JSON object")
    if opened > MAX_DEPTH and deeper_than(MAX_DEPTH, value):
        raise ClientError("body", f"is nested deeper than {MAX_DEPTH} levels")
    return value


def deeper_than(levels: int, value: Any) -> bool:
    """Whether a JSON value nests deeper, looked at level by level."""
    inside = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        children = (each.values() if isinstance(each, dict) else each for each in inside)
        inside = [child for each in children for child in each if child.__class__ is dict or child.__class__ is list]
        if not inside:
            break
    return bool(inside)


def convert(value: dict[str, Any], type_: type[T]) -> T:
    """The object as a struct; unknown keys are ignored. Raises ClientError for what is wrong or not built."""
    try:
        body = msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise explained(value, type_, str(error)) from None
    refuse_unbuilt(body, value)
    return body


def _near(data: bytes, position: int) -> str:
    """The characters around a syntax error: they hold the field's name. The position counts characters, not bytes."""
    text = data.decode("utf-8", "replace")
    around = text[max(0, position - 30) : position + 10].strip()
    return f" near {around!r}" if around else ""


# -- features that are not built ---------------------------------------------------------------------------------------


@cache
def _marks(type_: type[Struct]) -> tuple[tuple[str, Unbuilt | None], ...]:
    """The fields of a struct that may hold something to refuse: those with a mark, and those with structs inside."""
    marks: list[tuple[str, Unbuilt | None]] = []
    struct = inspect.type_info(type_)
    assert isinstance(struct, inspect.StructType)
    for field in struct.fields:
        extra = field.type.extra if isinstance(field.type, inspect.Metadata) else None
        mark = (extra or {}).get("unbuilt")
        if mark is not None or _holds_structs(field.type):
            marks.append((field.name, mark))
    return tuple(marks)


def _holds_structs(node: inspect.Type) -> bool:
    kinds = list(map(bare, kinds_of(node)))
    lists = [kind.item_type for kind in kinds if isinstance(kind, inspect.ListType)]
    return any(isinstance(kind, inspect.StructType) for kind in kinds) or any(map(_holds_structs, lists))


def refuse_unbuilt(body: Struct, written: dict[str, Any]) -> None:
    """Raises ClientError for a value of a marked field that asks for something, however deep it stands."""
    for name, mark in _marks(type(body)):
        value = getattr(body, name)
        if value is None:
            continue
        if mark is not None:
            _refuse_marked(value, written[name], name, mark)
        if isinstance(value, list):
            for i, item in enumerate(value):
                if _may_be_refused(item.__class__):
                    _refuse_inside(item, written[name][i], f"{name}[{i}]")
        elif _may_be_refused(value.__class__):
            _refuse_inside(value, written[name], name)


@cache
def _may_be_refused(type_: type) -> bool:
    return issubclass(type_, Refused) or (issubclass(type_, Struct) and bool(_marks(type_)))


def _refuse_inside(value: Struct, written: dict[str, Any], place: str) -> None:
    try:
        if isinstance(value, Refused):
            raise ClientError("", f"is of type {value.__struct_config__.tag!r}: this model takes text only")
        refuse_unbuilt(value, written)
    except ClientError as error:
        raise error.at(f"{place}.{error.place}".removesuffix(".")) from None


def _refuse_marked(value: Any, written: Any, place: str, mark: Unbuilt) -> None:
    items = value if isinstance(value, list) else [value]
    check_most(place, "entries", len(items), MAX_SEQUENCES)
    if not all(item is None or _is_one(item, mark.neutral) for item in items):
        fact = f"is {shown(written)}, but this feature is not built yet"
        raise ClientError(place, fact, mark.hint, code=mark.code)


def _is_one(item: Any, neutral: tuple[Any, ...]) -> bool:
    """0 and false are equal to Python, but not to a client."""
    return any(type(item) is type(each) and item == each for each in neutral)
