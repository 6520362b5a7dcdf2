"""What one question shows of its benchmark's lines, and the pieces that views share."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ramet.bench.figures.records import Record
from ramet.bench.figures.svg import Plot, Row, Value

Cells = tuple[str, ...]


@dataclass(frozen=True)
class View:
    numbers: dict[str, float]
    header: Cells
    rows: tuple[Cells, ...]
    plot: Plot
    sources: tuple[Record, ...]


@dataclass(frozen=True)
class FigureQuestion:
    file: str  # of bench/results/, without .jsonl
    fits: Callable[[Record], bool]
    view: Callable[[Sequence[Record]], View]


def slug(*parts: str) -> str:
    """A name that a conclusion can write: letters, digits and underscores."""
    return re.sub(r"[^a-z0-9]+", "_", " ".join(parts).lower()).strip("_")


def simple_rows(values: dict[str, float]) -> tuple[Row, ...]:
    return tuple(Row(name, (Value(value),)) for name, value in values.items())


def code(text: str) -> str:
    return f"`{text}`" if text.startswith("--") else text
