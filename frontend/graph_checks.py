"""Which nodes may stand where in a graph, whoever wrote it: a trace, or a file that somebody else made.

Raises ValueError. What a run would refuse as well, such as turns that nest, is left to it.
"""

import keyword
from collections.abc import Sequence
from typing import Any

from ramet.frontend import ir
from ramet.frontend.nodes import (
    COPY,
    JOINS,
    ROOT,
    Argument,
    Call,
    Fork,
    Formatted,
    GetForkItem,
    GraphNode,
    Join,
    Parameter,
    Prefetch,
    SetVariable,
    Text,
    VariableOf,
    unknowns,
)

APPENDED = (
    ir.ConstantText, ir.Gen, ir.Select, ir.Begin, ir.End, ir.Media, ir.ScopeBegin, ir.ScopeEnd, Argument, VariableOf,
    Formatted,
)  # fmt: skip
OTHERS = (Fork, GetForkItem, Join, Call, SetVariable, Prefetch)
CONVERSIONS = ("", "s", "r")


def check_parameters(parameters: Sequence[Parameter]) -> None:
    names: set[str] = set()
    has_default = False
    for name, optional, _, keyword_only in parameters:
        _check(name.isidentifier() and not keyword.iskeyword(name), f"a parameter is {name!r}, which is not a name")
        _check(name not in names, f"two parameters are {name!r}")
        names.add(name)
        if not keyword_only:
            _check(optional or not has_default, f"the parameter {name!r} has no default, but one before it has")
            has_default = has_default or optional


def check_nodes(nodes: Sequence[GraphNode], returned: Any, arguments: set[str]) -> None:
    """`arguments`: names of the graph's parameters."""
    checks = _Checks(len(nodes), arguments)
    before = None
    for number, node in enumerate(nodes):
        place = f"node {number} ({type(node.expr).__name__})"
        if node.goes_on:
            fits = before is not None and before.stream == node.stream and isinstance(before.expr, APPENDED)
            _check(fits and isinstance(node.expr, APPENDED), f"{place} goes on with a line that there is not")
        checks.check(node, place)
        before = node
    checks.check_value(returned, "what is returned")
    checks.check_end()


class _Checks:
    """The streams that there are after a number of nodes, and what is open in them."""

    def __init__(self, num_nodes: int, arguments: set[str]) -> None:
        self._num_nodes, self._arguments = num_nodes, arguments
        self._known = {ROOT}
        self._forks: dict[int, tuple[int, int]] = {}  # by the first stream: their parent and how many
        self._to_begin: dict[int, tuple[int, int]] = {}  # streams of forks: their parent and their index
        self._joined: set[int] = set()
        self._scopes: dict[int, list[str]] = {}  # of each stream, those that are open
        self._prefetched: list[tuple[str, tuple[int, ...]]] = []
        self._called: set[int] = set()

    def check(self, node: GraphNode, place: str) -> None:
        stream, expr, _ = node
        _check(isinstance(expr, APPENDED + OTHERS), f"{place} may not stand in a graph by itself")
        if isinstance(expr, Call):
            _check(expr.outer in self._known, f"{place} is called by stream {expr.outer}, which there is not")
            self._add(stream, place)
            self._called.add(stream)
        _check(stream in self._known, f"{place} is of stream {stream}, which there is not")
        match expr:
            case Fork():
                self._fork(stream, expr, place)
            case GetForkItem(parent, index):
                begins = self._to_begin.pop(stream, None)
                _check(begins == (parent, index), f"{place} does not begin stream {stream}")
            case Join():
                self._join(stream, expr, place)
            case ir.ScopeBegin(name):
                self._scopes.setdefault(stream, []).append(name)
            case ir.ScopeEnd(name):
                _check(name in self._scopes.get(stream, ()), f"{place} ends the scope {name!r}, which has not begun")
                self._scopes[stream].remove(name)
            case ir.Begin(role) | ir.End(role):
                _check(role in ir.ROLES, f"{place} has the role {role!r}, must be one of {', '.join(ir.ROLES)}")
            case SetVariable(_, value):
                self.check_value(value, place)
            case Prefetch(_, streams):
                self._prefetched.append((place, streams))
            case Argument() | VariableOf() | Formatted():
                self.check_value(expr, place)
            case ir.Media(_, ir.Expr() as source):
                variable = any(isinstance(each, VariableOf) for each in unknowns(source))
                _check(not variable, f"{place} is of a variable, and media are known before a call")
                self.check_value(source, place)

    def check_value(self, value: Any, place: str) -> None:
        """It is made of constants, and of values that there are."""
        _check_form(value, place)
        for unknown in unknowns(value):
            if isinstance(unknown, Argument):
                there = unknown.name in self._arguments
                _check(there, f"{place} reads the argument {unknown.name!r}, which there is not")
            else:
                there = unknown.stream in self._known
                _check(there, f"{place} reads a variable of stream {unknown.stream}, which there is not")
                _check(unknown.version >= 0, f"{place} reads version {unknown.version} of a variable")
                _check(unknown.index is None or unknown.index >= 0, f"{place} reads index {unknown.index}")

    def check_end(self) -> None:
        for stream, names in self._scopes.items():
            _check(not names, f"the scope {names[-1] if names else ''!r} of stream {stream} does not end")
        _check(not self._to_begin, f"streams {', '.join(map(str, self._to_begin))} have no GetForkItem")
        for place, streams in self._prefetched:
            _check(set(streams) <= self._called, f"{place} is for a stream that is of no call")

    def _fork(self, stream: int, fork: Fork, place: str) -> None:
        # each fork has a node of its own, so a graph of few nodes makes few of them
        _check(1 <= fork.size <= self._num_nodes, f"{place} makes {fork.size} forks, more than there are nodes for")
        self._forks[fork.first] = (stream, fork.size)
        for index in range(fork.size):
            self._add(fork.first + index, place)
            self._to_begin[fork.first + index] = (stream, index)

    def _join(self, stream: int, join: Join, place: str) -> None:
        parent, size = self._forks.get(join.first, (None, 0))
        _check(parent == stream, f"{place} joins {join.first}, which begins no fork of its stream")
        _check(join.mode in JOINS, f"{place} has the mode {join.mode!r}, must be one of {', '.join(JOINS)}")
        _check(join.mode != COPY or size == 1, f"{place} joins {size} forks, and a copy is one")
        _check(join.first not in self._joined, f"{place} joins forks that are joined already")
        self._joined.add(join.first)

    def _add(self, stream: int, place: str) -> None:
        _check(stream > ROOT and stream not in self._known, f"{place} makes stream {stream}, which there is already")
        self._known.add(stream)


def _check_form(value: Any, place: str) -> None:
    match value:
        case Argument() | VariableOf():
            return
        case Formatted(inner, conversion):
            fits = isinstance(inner, Argument | VariableOf | Text) and conversion in CONVERSIONS
            _check(fits, f"{place} formats what is no value, or by {conversion!r}")
            _check_form(inner, place)
        case Text(parts):
            for part in parts:
                fits = isinstance(part, ir.ConstantText | Formatted | Argument | VariableOf)
                _check(fits, f"{place} has a {type(part).__name__} in a text")
                if not isinstance(part, ir.ConstantText):
                    _check_form(part, place)
        case ir.Expr():
            raise ValueError(f"{place} has a {type(value).__name__}, which is no value")
        case list() | tuple():
            for each in value:
                _check_form(each, place)
        case dict():
            for key, each in value.items():
                _check(not isinstance(key, ir.Expr), f"{place} has a key that only a run knows")
                _check_form(each, place)


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
