"""Texts near an output: most of them break its constraint by one detail."""

import json
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

PIECES = (
    "0", "1", "-", ".5", "e1", "00", '"', '""', "\\", '\\"', "\\n", "\\u0041", ",", ", ", ":", ": ", " ", "  ", "\n",
    "[", "]", "{", "}", "[]", "{}", "null", "true", "false", "a", "b", "é", "日", "🙂", "x_", ', "a": 0', '"a": 0, ',
    ", null", "1, ",
)  # fmt: skip
MANY = 10**15
VALUES = (None, True, 0, -1, 1.5, "", "a", [], {}, [0], {"a": 0})


def mutations(text: str, draw: Random, count: int) -> Iterator[str]:
    value: Any = None
    with suppress(ValueError):
        value = json.loads(text)
    for _ in range(count):
        if value is not None and draw.random() < 0.5:
            yield json.dumps(_other_value(value, draw), ensure_ascii=draw.random() < 0.1)
        else:
            changed = _other_text(text, draw)
            yield _other_text(changed, draw) if draw.random() < 0.2 else changed


def _other_text(text: str, draw: Random) -> str:
    start = draw.randint(0, len(text))
    end = min(len(text), start + draw.choice((1, 1, 1, 2, 3, 8)))
    match draw.choice(("insert", "insert", "delete", "replace", "repeat", "swap")):
        case "insert":
            return text[:start] + draw.choice(PIECES) + text[start:]
        case "delete":
            return text[:start] + text[end:]
        case "replace":
            return text[:start] + draw.choice(PIECES) + text[end:]
        case "repeat":
            return text[:end] + text[start:end] + text[end:]
    parts = text.split(", ")
    one, other = draw.randrange(len(parts)), draw.randrange(len(parts))
    parts[one], parts[other] = parts[other], parts[one]
    return ", ".join(parts)


def _other_value(value: Any, draw: Random) -> Any:
    """Another value at one place of it."""
    if draw.random() < 0.1:
        return draw.choice(VALUES)
    match value:
        case dict() if value and draw.random() < 0.6:
            key = draw.choice(list(value))
            return {**value, key: _other_value(value[key], draw)}
        case list() if value and draw.random() < 0.6:
            place = draw.randrange(len(value))
            return [*value[:place], _other_value(value[place], draw), *value[place + 1 :]]
        case dict():
            return _other_members(value, draw)
        case list():
            place = draw.randint(0, len(value))
            more = draw.choice(VALUES) if not value or draw.random() < 0.5 else draw.choice(value)
            return draw.choice(([*value[:place], more, *value[place:]], value[:-1], value[::-1]))
        case str():
            return draw.choice(
                (value + "a", value + "日", value[:-1], value.upper(), value[::-1], value * 2, "\n" + value)
            )
        case bool() | None:
            return draw.choice(VALUES)
        case int() | float() if abs(value) > MANY:  # no float holds it
            return draw.choice((-value, 0))
        case int() | float():
            return draw.choice((value + 1, value - 1, value * 10, -value, value + 0.5, value / 10, value + 0.001))
    raise AssertionError(value)


def _other_members(value: dict[str, Any], draw: Random) -> dict[str, Any]:
    left = list(value.items())
    match draw.choice(("more", "less", "order")):
        case "more":
            left.insert(draw.randint(0, len(left)), (draw.choice(("zz", "", "a", "x_1")), draw.choice(VALUES)))
        case "less" if left:
            left.pop(draw.randrange(len(left)))
        case _:
            draw.shuffle(left)
    return dict(left)
