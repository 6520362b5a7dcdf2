"""How many calls of a graph wait for one another, at most: what a run's latency is made of.

Follows the graph as a run would, with numbers in place of values: how many calls each of them waits for.
"""

from collections.abc import Iterator
from typing import Any

from ramet.frontend.graph import Graph
from ramet.frontend.ir import Gen, ScopeEnd, Select
from ramet.frontend.nodes import CONCATENATE, COPY, ROOT, Call, Fork, Join, SetVariable, VariableOf, unknowns
from ramet.frontend.variables import THOUGHT, Variables


class Depth:
    """Calls that a value waits for. `each`: of a list that a join made."""

    def __init__(self, num: int = 0, each: "list[Depth] | None" = None) -> None:
        self.each = each
        self.num: int = num if each is None else max((one.num for one in each), default=0)


class StreamDepths:
    """`num`: calls that what comes next in it waits for."""

    def __init__(self, parent: "StreamDepths | None" = None) -> None:
        self.num: int = parent.num if parent else 0
        self.names: Variables = Variables(parent.names if parent else None)  # for those of calls without a name
        self.values: dict[str, Depth] = dict(parent.values) if parent else {}
        self.new: dict[str, Depth] = {}
        self.versions: dict[str, list[Depth]] = {name: [value] for name, value in self.values.items()}

    def put(self, name: str, depth: Depth, is_new: bool = True) -> None:
        self.values[name] = depth
        self.versions.setdefault(name, [Depth()]).append(depth)
        if is_new:
            self.new[name] = depth

    def call(self, name: str | None, thoughts: bool) -> None:
        self.num += 1
        called = self.names.free_name() if name is None else name
        self.put(called, Depth(self.num), name is not None)
        if thoughts:
            self.put(called + THOUGHT, Depth(self.num))

    def gather(self, children: "list[StreamDepths]") -> None:
        for name in dict.fromkeys(name for child in children for name in child.new):
            before = self.values.get(name)
            earlier = before.each if before is not None and before.each is not None else []
            self.put(name, Depth(each=[*earlier, *(child.new[name] for child in children if name in child.new)]))


def calls_in_a_row(graph: Graph) -> int:
    streams = {ROOT: StreamDepths()}
    forks: dict[int, list[StreamDepths]] = {}
    for node in graph.nodes:
        if isinstance(node.expr, Call):
            streams[node.stream] = StreamDepths()
            continue
        if (stream := streams.get(node.stream)) is None:
            continue
        match node.expr:
            case Gen(name):
                stream.call(name, node.expr.thoughts is not None)
            case Select(name):
                stream.call(name, thoughts=False)
            case ScopeEnd(name):
                stream.put(name, Depth(stream.num))
            case SetVariable(name, value):
                stream.put(name, Depth(_waits(value, streams)))
            case Fork(first, size):
                forks[first] = [StreamDepths(stream) for _ in range(size)]
                streams |= {first + index: child for index, child in enumerate(forks[first])}
            case Join(first, mode) if mode == COPY:
                for name, depth in forks[first][0].new.items():
                    stream.put(name, depth)
            case Join(first, mode):
                stream.gather(forks[first])
                if mode == CONCATENATE:
                    stream.num = max([stream.num, *(child.num for child in forks[first])])
            case value:
                stream.num = max(stream.num, _waits(value, streams))
    return max((stream.num for stream in streams.values()), default=0)


def _waits(value: Any, streams: dict[int, StreamDepths]) -> int:
    return max((depth.num for depth in _depths(value, streams)), default=0)


def _depths(value: Any, streams: dict[int, StreamDepths]) -> Iterator[Depth]:
    for each in unknowns(value):
        if isinstance(each, VariableOf):
            versions = streams[each.stream].versions.get(each.name, [])
            depth = versions[each.version] if each.version < len(versions) else Depth()
            in_list = each.index is not None and depth.each is not None and each.index < len(depth.each)
            yield depth.each[each.index] if in_list and depth.each and each.index is not None else depth
