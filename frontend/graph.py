"""A program as a graph: what its function appends to which prompt. Section 4.3.1 of the SGLang paper.

A graph is the list of a program's nodes in the order in which its function wrote them, each with the number of its
stream: a prompt of its own, made by the program, a fork or a call of another program. This order is topological. Values
that only a run knows are nodes as well (nodes.py): arguments, and variables of calls.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from ramet.frontend.graph_checks import check_nodes, check_parameters
from ramet.frontend.ir import Expr
from ramet.frontend.nodes import ROOT, Call, Fork, GraphNode, Parameter, shown


@dataclass(frozen=True)
class Graph:
    """`returned`: what the function returns, as the value of a SetVariable. `is_async`: the function is."""

    name: str
    parameters: tuple[Parameter, ...]
    nodes: tuple[GraphNode, ...]
    returned: Any = None
    spec_tokens: int | None = None
    is_async: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for nodes and parameters that do not fit together."""
        check_parameters(self.parameters)
        check_nodes(self.nodes, self.returned, {parameter.name for parameter in self.parameters})

    @property
    def streams(self) -> dict[int, list[Expr]]:
        """The nodes of each."""
        found: dict[int, list[Expr]] = {ROOT: []}
        for node in self.nodes:
            found.setdefault(node.stream, []).append(node.expr)
        return found

    @property
    def content(self) -> list[Any]:
        """What it does, wherever it was written. How an output is read follows from what it keeps to."""
        nodes = [[stream, type(expr).__name__, _fields(expr), *rest] for stream, expr, *rest in self.nodes]
        return [self.name, self.parameters, nodes, self.returned, self.spec_tokens]

    def print_graph_dfs(self) -> None:
        """Prints each stream below the node that made it."""
        print("\n".join(self._lines(ROOT, "")))

    def _lines(self, stream: int, indent: str) -> Iterator[str]:
        yield f"{indent}stream {stream}" + (f": {self.name.rpartition(':')[2]}" if stream == ROOT else "")
        calls = [node.stream for node in self.nodes if isinstance(node.expr, Call) and node.expr.outer == stream]
        for expr in self.streams.get(stream, []):
            yield f"{indent}  {shown(expr)}"
            if isinstance(expr, Fork):
                for child in range(expr.first, expr.first + expr.size):
                    yield from self._lines(child, indent + "    ")
        for called in calls:
            yield from self._lines(called, indent + "    ")


def _fields(expr: Expr) -> dict[str, Any]:
    names = (field.name for field in fields(expr))  # type: ignore[arg-type]
    return {name: getattr(expr, name) for name in names if name not in ("where", "read")}
