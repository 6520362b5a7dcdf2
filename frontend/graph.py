"""A program as a graph: what its function appends to which prompt. Section 4.3.1 of the SGLang paper.

A graph is the list of a program's nodes in the order in which its function wrote them, each with the number of its
stream: a prompt of its own, made by the program, a fork or a call of another program. This order is topological. Values
that only a run knows are nodes as well: arguments, and variables of calls.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeAlias

from ramet.frontend.ir import ConstantText, Expr, Gen, Select
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
    """A value inside an f-string. `conversion`: "" or "r"; `spec`: what stood behind the colon."""

    value: Unknown
    conversion: str = ""
    spec: str = ""

    def of(self, value: Any) -> str:
        return format(repr(value) if self.conversion == "r" else value, self.spec)


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
    timeout_s: float | None = None
    hints: bool = True


@dataclass(frozen=True, slots=True)
class SetVariable(Expr):
    """`value`: a constant, an Unknown, a Text, or lists, tuples and dicts of these."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Text(Expr):
    """A text that is no part of a prompt: constants, and Formatted."""

    parts: tuple[Expr, ...]


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


class Node(NamedTuple):
    stream: int
    expr: Expr


@dataclass(frozen=True)
class Graph:
    """`returned`: what the function returns, as the value of a SetVariable."""

    name: str
    parameters: tuple[Parameter, ...]
    nodes: tuple[Node, ...]
    returned: Any = None
    spec_tokens: int | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for nodes of streams that nobody made, joins of what is no fork, unknown arguments."""
        known, forks = {ROOT}, {}
        names = {parameter.name for parameter in self.parameters}
        for number, (stream, expr) in enumerate(self.nodes):
            place = f"node {number} ({type(expr).__name__})"
            match expr:
                case Fork(first, size):
                    forks[first] = stream
                    known |= set(range(first, first + size))
                case Call(outer):
                    _check(outer in known, f"{place} is called by stream {outer}, which there is not")
                    known.add(stream)
                case Join(first, mode):
                    _check(forks.get(first) == stream, f"{place} joins {first}, which begins no fork of its stream")
                    _check(mode in JOINS, f"{place} has the mode {mode!r}, must be one of {', '.join(JOINS)}")
            _check(stream in known or isinstance(expr, Prefetch), f"{place} is of stream {stream}, which there is not")
            _check_values(expr, known, names, place)
        _check_values(SetVariable("", self.returned), known, names, "what is returned")

    @property
    def streams(self) -> dict[int, list[Expr]]:
        """The nodes of each."""
        found: dict[int, list[Expr]] = {ROOT: []}
        for stream, expr in self.nodes:
            found.setdefault(stream, []).append(expr)
        return found

    @property
    def content(self) -> list[Any]:
        """What it does, wherever it was written. How an output is read follows from what it keeps to."""
        nodes = [[stream, type(expr).__name__, _fields(expr)] for stream, expr in self.nodes]
        return [self.name, self.parameters, nodes, self.returned, self.spec_tokens]

    def print_graph_dfs(self) -> None:
        """Prints each stream below the node that made it."""
        print("\n".join(self._lines(ROOT, "")))

    def _lines(self, stream: int, indent: str) -> Iterator[str]:
        yield f"{indent}stream {stream}" + (f": {self.name.rpartition(':')[2]}" if stream == ROOT else "")
        calls = [number for number, expr in self.nodes if isinstance(expr, Call) and expr.outer == stream]
        for expr in self.streams.get(stream, []):
            yield f"{indent}  {shown(expr)}"
            if isinstance(expr, Fork):
                for child in range(expr.first, expr.first + expr.size):
                    yield from self._lines(child, indent + "    ")
        for called in calls:
            yield from self._lines(called, indent + "    ")


def unknowns(value: Any) -> Iterator[Unknown]:
    """Those that a value is made of."""
    match value:
        case Argument() | VariableOf():
            yield value
        case Formatted(inner):
            yield inner
        case Text(parts):
            yield from unknowns(list(parts))
        case SetVariable(_, inner):
            yield from unknowns(inner)
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
        case Gen(name):
            held = f", {expr.held.kind}" if expr.held else ""
            return (
                f"Gen {name or '(unnamed)'}"
                + "".join(f", {key}={each!r}" for key, each in expr.sampling.items())
                + held
            )
        case Select(name, choices=choices):
            return f"Select {name or '(unnamed)'} of {len(choices)}: {_cut(' | '.join(choices))}"
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


def _fields(expr: Expr) -> dict[str, Any]:
    names = (field.name for field in fields(expr))  # type: ignore[arg-type]
    return {name: getattr(expr, name) for name in names if name not in ("where", "read")}


def _cut(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")


def _check_values(expr: Expr, known: set[int], names: set[str], place: str) -> None:
    for unknown in unknowns(expr):
        if isinstance(unknown, VariableOf):
            _check(unknown.stream in known, f"{place} reads a variable of stream {unknown.stream}, which there is not")
        else:
            _check(unknown.name in names, f"{place} reads the argument {unknown.name!r}, which there is not")


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
