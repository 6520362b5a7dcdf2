"""Seeded JSON schemas of values that hold no other: each with a shortest value that it allows."""

import json
from random import Random
from typing import Any, NamedTuple

from grammar_cases import formats
from grammar_cases.regexes import Pattern, make_pattern

STRINGS = (
    "",
    "a",
    "yes",
    "no",
    "two words",
    "naïve",
    "東京",
    "🙂",
    'a "quote"',
    "back\\slash",
    "line\nbreak",
    "\t",
    "/",
)
OTHERS = (None, True, False, 0, 7, -1, 1.5, 100000, [], [1, "a"], {}, {"a": 1}, {"b": [None], "a": {"ü": '"'}})
CLOSED_TYPES = ("null", "boolean", "integer", "number", "string")
GRID = 3  # decimal places of numbers that are tried


class Made(NamedTuple):
    schema: Any
    shortest: Any
    types: frozenset[str]  # JSON types that it allows: schemas of different ones exclude each other
    hints: tuple[str, ...] = ()  # texts that strings may need to end


def made(schema: Any, shortest: Any, *types: str, hints: tuple[str, ...] = ()) -> Made:
    return Made(schema, shortest, frozenset(types), hints)


def length(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def make_null(draw: Random) -> Made:
    return made({"type": "null"}, None, "null")


def make_boolean(draw: Random) -> Made:
    return made({"type": "boolean"}, True, "boolean")


def make_integer(draw: Random) -> Made:
    low, high = _range(draw)
    step = draw.choice((None, None, None, 2, 3, 5, 10))
    if step and low is not None and high is not None:
        high = max(high, low + step)  # a multiple lies between
    schema: dict[str, Any] = {"type": "integer", **_bounds(draw, low, high, by=1)}
    if step:
        schema["multipleOf"] = step
    candidates = (sign * number for number in range(100_000) for sign in (1, -1))
    found = (n for n in candidates if _inside(n, low, high) and (not step or n % step == 0))
    return made(schema, next(found), "integer")


def make_number(draw: Random) -> Made:
    """All numbers are counted in thousandths, so none of the arithmetic is rounded."""
    low, high = _range(draw)
    unit = 10**GRID
    if low is not None and draw.random() < 0.4:
        low = low * unit + draw.choice((100, 250, 500))
        high = None if high is None else high * unit + draw.choice((500, 600, 750))
    else:
        low, high = (None if bound is None else bound * unit for bound in (low, high))
    step = draw.choice((None, None, None, None, 2000, 500, 250, 100, 10))
    if step and low is not None and high is not None:
        high = max(high, low + step)
    bounds = _bounds(draw, low, high, by=1)
    schema: dict[str, Any] = {"type": "number", **{key: _thousandths(bound) for key, bound in bounds.items()}}
    if step:
        schema["multipleOf"] = _thousandths(step)
    for places in range(GRID + 1):
        spacing = 10 ** (GRID - places)
        around = 0 if _inside(0, low, high) else (low if low is not None and low > 0 else high)
        nearest = [around // spacing * spacing + sign * spacing * k for k in range(2100) for sign in (1, -1)]
        fits = [n for n in nearest if _inside(n, low, high) and (not step or n % step == 0)]
        if fits:
            return made(schema, min((_thousandths(n) for n in fits), key=lambda n: len(str(n))), "number", "integer")
    raise AssertionError(schema)


def _thousandths(count: int) -> int | float:
    return count // 1000 if count % 1000 == 0 else count / 1000


def _range(draw: Random) -> tuple[int | None, int | None]:
    match draw.choice(("open", "from", "to", "between", "between")):
        case "from":
            return draw.choice((0, 1, -5, 10, 99, 1000)), None
        case "to":
            return None, draw.choice((0, 1, -5, 10, 99, 1000))
        case "between":
            low = draw.choice((0, 1, -20, -3, 7, 18, 95, 998, 12345))
            return low, low + draw.choice((0, 1, 3, 12, 87, 1000))
    return None, None


def _bounds(draw: Random, low: int | None, high: int | None, by: int) -> dict[str, int]:
    """The keywords of [low, high], exclusive ones among them."""
    found = {}
    if low is not None:
        found.update({"exclusiveMinimum": low - by} if draw.random() < 0.3 else {"minimum": low})
    if high is not None:
        found.update({"exclusiveMaximum": high + by} if draw.random() < 0.3 else {"maximum": high})
    return found


def _inside(number: int, low: int | None, high: int | None) -> bool:
    return (low is None or number >= low) and (high is None or number <= high)


def make_string(draw: Random) -> Made:
    match draw.choice(("free", "length", "length", "pattern", "pattern", "format", "both")):
        case "length":
            low = draw.choice((None, 0, 1, 2, 5))
            high = (low or 0) + draw.choice((0, 1, 3, 10))
            schema = {"type": "string"} | ({} if low is None else {"minLength": low}) | {"maxLength": high}
            return made(schema, "a" * (low or 0), "string")
        case "pattern":
            return _patterned(draw)
        case "format":
            name = draw.choice(sorted(formats.SHORTEST))
            return made(
                {"type": "string", "format": name}, formats.SHORTEST[name], "string", hints=(formats.SHORTEST[name],)
            )
        case "both":
            low, more = draw.randint(0, 4), draw.randint(0, 6)
            text = draw.choice(("^[a-z]*$", "^[A-Z][a-z ]*$", "^(ab|c)+$", "^[^0-9]+$", "^\\S+$", "^[日本語]{1,}$"))
            first = {"^[A-Z][a-z ]*$": "A", "^[日本語]{1,}$": "日"}.get(text, "c" if "c" in text else "a")
            size = max(low, 0 if text == "^[a-z]*$" else 1)
            shortest = first + ("日" if first == "日" else "c" if first == "c" else "a") * (size - 1) if size else ""
            schema = {"type": "string", "pattern": text, "minLength": low, "maxLength": low + more + 1}
            return made(schema, shortest, "string", hints=(shortest,))
    return made({"type": "string"}, "", "string")


def _patterned(draw: Random) -> Made:
    """Patterns are searched for: with both anchors, with one, or with none."""
    pattern: Pattern = make_pattern(draw, depth=1)
    before, after = draw.choice((("^", "$"), ("^", "$"), ("^", "$"), ("^", ""), ("", "$"), ("", "")))
    inside = f"(?:{pattern.text})" if "|" in pattern.text else pattern.text
    schema = {"type": "string", "pattern": before + inside + after}
    return made(schema, pattern.shortest, "string", hints=(pattern.shortest, *pattern.ways))


def make_enum(draw: Random) -> Made:
    values = draw.sample(STRINGS + OTHERS, draw.randint(1, 5))
    shortest = min(values, key=length)
    if all(isinstance(value, str) for value in values):
        return made({"type": "string", "enum": values}, shortest, "string")
    return made({"enum": values}, shortest, *CLOSED_TYPES, "array", "object")


def make_const(draw: Random) -> Made:
    value = draw.choice(STRINGS + OTHERS)
    return made({"const": value}, value, *CLOSED_TYPES, "array", "object")


def make_types(draw: Random) -> Made:
    """A list of types, with the keywords of each: those of one say nothing of the others."""
    parts = draw.sample((make_integer, make_string, make_boolean), draw.randint(1, 2))
    options = [make(draw) for make in parts] + [make_null(draw)]
    draw.shuffle(options)
    schema: dict[str, Any] = {}
    for option in options:
        schema |= option.schema
    schema["type"] = [option.schema["type"] for option in options]
    shortest = min((option.shortest for option in options), key=length)
    types = frozenset[str]().union(*(option.types for option in options))
    return Made(schema, shortest, types, tuple(hint for option in options for hint in option.hints))


SCALARS = (
    make_null, make_boolean, make_integer, make_integer, make_number, make_string, make_string, make_string, make_enum,
    make_const, make_types,
)  # fmt: skip


def make_scalar(draw: Random) -> Made:
    return draw.choice(SCALARS)(draw)
