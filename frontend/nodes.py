"""The nodes of a graph beside those of ir.py: values that only a run knows, forks, joins, calls of programs, variables.

Knows no graph: graph.py puts nodes together, graph_checks.py says which may stand where.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ramet.frontend.ir import ConstantText, Expr, Gen, Media, Select
from ramet.frontend.prompt import Piece, chained

GATHER, CONCATENATE, COPY = "gather_variable", "concate_and_append", "copy"
JOINS = (GATHER, CONCATENATE, COPY)
ROOT = 0  # the stream of the program's own prompt
SHOWN = 60  # characters of a text in a printed graph


@dataclass(frozen=True, slots=True)
class Argument(Expr):
    """The value of a parameter of the program."""

    name: str


@dataclass(frozen=True, slots=True)
class VariableOf(Expr):
    """The value of a variable of a stream. `index`: of a value that is a list.

    `version`: how often the stream had made a variable of that name when its value was taken; 0: it has it from the
    stream that it was forked from.
    """

    stream: int
    name: str
    version: int = 1
    index: int | None = None


Unknown: TypeAlias = Argument | VariableOf  # what only a run knows


@dataclass(frozen=True, slots=True)
class Formatted(Expr):
    """A value inside an f-string. `conversion`: "", "s" or "r"; `spec`: what stood behind the colon."""

    value: "Unknown | Text"
    conversion: str = ""
    spec: str = ""

    def of(self, value: Any) -> str:
        match self.conversion:
            case "r":
                return format(repr(value), self.spec)
            case "s":
                return format(str(value), self.spec)
        return format(value, self.spec)


@dataclass(frozen=True, slots=True)
class Text(Expr):
    """A text that is no part of a prompt: constants, Formatted, and the values of a sum, which must be texts."""

    parts: tuple["ConstantText | Formatted | Unknown", ...]


@dataclass(frozen=True, slots=True)
class Fork(Expr):
    """Its stream is forked: streams `first` to `first` + `size` - 1."""

    first: int
    size: int


@dataclass(frozen=True, slots=True)
class GetForkItem(Expr):
    """A stream begins as fork number `index` of another one."""

    parent: int
    index: int


@dataclass(frozen=True, slots=True)
class Join(Expr):
    """The forks that begin with `first` are joined to their parent's stream."""

    first: int
    mode: str = GATHER


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """A stream begins as that of another program, called by the one of stream `outer`. The rest is its run's."""

    outer: int
    kind: str
    sampling: Mapping[str, Any]
    options: Mapping[str, Any]
    spec_tokens: int | None = None
    hints: bool = True


@dataclass(frozen=True, slots=True)
class SetVariable(Expr):
    """`value`: a constant, an Unknown, a Formatted, a Text, or lists, tuples and dicts of these."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Prefetch(Expr):
    """The runtime computes a prompt now, for the first calls of `streams`, which come later (section 4.3.2)."""

    pieces: tuple[Piece, ...]
    streams: tuple[int, ...]


class Parameter(NamedTuple):
    """Of the program, beside the state."""

    name: str
    has_default: bool = False
    default: Any = None
    keyword_only: bool = False


class GraphNode(NamedTuple):
    """`goes_on`: it is appended together with the node before it, by one line, all of which is refused or none."""

    stream: int
    expr: Expr
    goes_on: bool = False


def unknowns(value: Any) -> Iterator[Unknown]:
    """Those that a value is made of."""
    match value:
        case Argument() | VariableOf():
            yield value
        case Formatted(inner) | SetVariable(_, inner) | Media(_, inner):
            yield from unknowns(inner)
        case Text(parts):
            yield from unknowns(list(parts))
        case list() | tuple():
            for each in value:
                yield from unknowns(each)
        case dict():
            yield from unknowns(list(value.values()))


def shown(expr: Expr) -> str:
    """A node in one line."""
    match expr:
        case ConstantText(text):
            return f"ConstantText {_cut(text)}" + (" (movable)" if expr.movable else "")
        case Argument(name):
            return f"Argument {name}"
        case VariableOf(stream, name, version, index):
            which = f" ({version})" if version > 1 else ""
            return f"Variable {name}" + (f"[{index}]" if index is not None else "") + f"{which} of stream {stream}"
        case Formatted(value, conversion, spec):
            how = (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
            return f"{shown(value)} in a text" + (f", as {how}" if how else "")
        case Text(parts):
            return "Text of " + ", ".join(map(shown, parts))
        case Gen(name):
            held = f", {expr.held.kind}" if expr.held else ""
            return (
                f"Gen {name or '(unnamed)'}"
                + "".join(f", {key}={each!r}" for key, each in expr.sampling.items())
                + held
            )
        case Select(name, choices=choices):
            return f"Select {name or '(unnamed)'} of {len(choices)}: {_cut(' | '.join(choices))}"
        case Media(kind, Expr() as source):
            return f"Media {kind} of {shown(source)}"
        case Fork(first, size):
            return f"Fork {size}: " + (f"streams {first} to {first + size - 1}" if size > 1 else f"stream {first}")
        case GetForkItem(parent, index):
            return f"GetForkItem {index} of stream {parent}"
        case Join(first, mode):
            return f"Join {mode} of the forks from stream {first}"
        case Call(outer, kind):
            return f"Call {kind} by stream {outer}"
        case SetVariable(name):
            return f"SetVariable {name}"
        case Prefetch(pieces, streams):
            return f"Prefetch {_cut(chained(pieces).text())} for streams {', '.join(map(str, streams))}"
    details = [getattr(expr, name) for name in ("role", "kind", "name") if hasattr(expr, name)]
    return " ".join([type(expr).__name__, *map(str, details)])


def _cut(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")
