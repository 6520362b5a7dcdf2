"""Texts near an output: most of them break its constraint by one detail."""

from collections.abc import Iterator
from random import Random

PIECES = (
    "0", "1", "-", ".5", "e1", "00", '"', '""', "\\", '\\"', "\\n", "\\u0041", ",", ", ", ":", ": ", " ", "  ", "\n", "[",
    "]", "{", "}", "[]", "{}", "null", "true", "false", "a", "b", "é", "日", "🙂", "x_", ', "a": 0', '"a": 0, ', ", null",
    "1, ",
)  # fmt: skip


def mutations(text: str, draw: Random, count: int) -> Iterator[str]:
    for _ in range(count):
        changed = _changed(text, draw)
        yield _changed(changed, draw) if draw.random() < 0.2 else changed


def _changed(text: str, draw: Random) -> str:
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
