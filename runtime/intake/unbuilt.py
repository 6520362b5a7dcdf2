"""Features that are not built: what marks them in a body's types, and the one place that refuses them.

Decides which values ask for nothing. Knows no feature.
"""

from functools import cache
from typing import Any, NamedTuple, get_type_hints

from msgspec import Meta, Struct, inspect

from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.limits import MAX_SEQUENCES


class Unbuilt(NamedTuple):
    """Marks a field. Any value is refused but null, [] and the neutral ones."""

    neutral: tuple[Any, ...]
    hint: str
    code: str


def unbuilt(text: str, neutral: tuple[Any, ...] = (), hint: str = "omit it", code: str = "", **schema: Any) -> Meta:
    return Meta(
        description=f"*refused until it is built*: {text}",
        extra_json_schema={"x-unbuilt": True, **schema},
        extra={"unbuilt": Unbuilt(neutral, hint, code)},
    )


class Refused(Struct, frozen=True, tag_field="type"):
    """Base of what is known by its type alone, as a picture in a message, and refused until it is built."""


@cache
def _marks(type_: type) -> tuple[tuple[str, Unbuilt | None], ...]:
    """The fields of a struct that may hold something to refuse: those with a mark, and those with structs inside."""
    marks: list[tuple[str, Unbuilt | None]] = []
    for name, hint in get_type_hints(type_, include_extras=True).items():
        extras = [
            meta.extra["unbuilt"] for meta in getattr(hint, "__metadata__", ()) if "unbuilt" in (meta.extra or ())
        ]
        if extras or _holds_structs(inspect.type_info(hint)):
            marks.append((name, extras[0] if extras else None))
    return tuple(marks)


def _holds_structs(node: inspect.Type) -> bool:
    match node:
        case inspect.StructType():
            return True
        case inspect.Metadata(inner) | inspect.ListType(inner):
            return _holds_structs(inner)
        case inspect.UnionType(types):
            return any(map(_holds_structs, types))
    return False


def refuse_unbuilt(value: Any, written: Any, place: str = "") -> None:
    """Of a struct at `place`, what it is and what its fields hold, however deep."""
    if isinstance(value, Refused):
        kind = type(value).__struct_config__.tag
        raise ClientError(place, f"is of type {kind!r}: this model takes text only")
    if isinstance(value, list):
        for i, item in enumerate(value):
            if isinstance(item, Struct):
                refuse_unbuilt(item, written[i], f"{place}[{i}]")
    elif isinstance(value, Struct):
        for name, mark in _marks(type(value)):
            inside = getattr(value, name)
            if inside is None:
                continue
            at = f"{place}.{name}" if place else name
            if mark is not None:
                _refuse_marked(inside, written.get(name), at, mark)
            refuse_unbuilt(inside, written.get(name), at)


def _refuse_marked(value: Any, written: Any, place: str, mark: Unbuilt) -> None:
    items = value if isinstance(value, list) else [value]
    if len(items) > MAX_SEQUENCES:
        raise ClientError(place, f"has {len(items)} entries, must have at most {MAX_SEQUENCES}")
    if not all(item is None or _is_one(item, mark.neutral) for item in items):
        fact = f"is {shown(written)}, but this feature is not built yet"
        raise ClientError(place, fact, mark.hint, code=mark.code)


def _is_one(item: Any, neutral: tuple[Any, ...]) -> bool:
    """0 and false are equal to Python, but not to a client."""
    return any(type(item) is type(each) and item == each for each in neutral)
