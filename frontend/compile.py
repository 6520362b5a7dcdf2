"""A graph as a function again: its nodes go to the states of a run in their order. Section 4.3.1 of the SGLang paper.

Nothing in it waits. Each line is submitted to its stream at once, and a stream waits for values of others by itself, so
calls run beside each other also where the program's own function would have waited for a value to append it.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

from ramet.frontend import nodes
from ramet.frontend.appending import StateGroup
from ramet.frontend.errors import ProgramError
from ramet.frontend.graph import Graph
from ramet.frontend.graph_checks import APPENDED
from ramet.frontend.hints import Prefetched
from ramet.frontend.ir import Concat, ConstantText, Expr, Media, Variable, as_expr, leaves_of
from ramet.frontend.loop import check_wait
from ramet.frontend.media import source_of
from ramet.frontend.prompt import Prompt, chained
from ramet.frontend.results import Gathered, Result
from ramet.frontend.run import Run, RunSettings
from ramet.frontend.state import State
from ramet.frontend.worked_out import Failing, mapped, worked_out


class GraphLine(NamedTuple):
    """Nodes that are appended together."""

    stream: int
    exprs: tuple[Expr, ...]


class GraphPlan(NamedTuple):
    """What all runs of a graph have in common. `read`: of each stream, variables whose values are used somewhere."""

    graph: Graph
    lines: tuple[GraphLine, ...]
    read: Mapping[int, Set[str]]

    @property
    def waits(self) -> bool:
        """For what the function returns."""
        return any(isinstance(each, nodes.VariableOf) for each in nodes.unknowns(self.graph.returned))


def as_function(graph: Graph) -> Callable[..., Any]:
    """What `function` makes a program of. Its parameters are the graph's, its name is that of the function traced."""
    own = inspect.Signature(list(_parameters(graph)))
    plan = GraphPlan(graph, tuple(lines_of(graph)), variables_read(graph))
    module, _, qualname = graph.name.partition(":")
    name = qualname.rpartition(".")[2]

    def replayed(state: Any, /, *args: Any, **kwargs: Any) -> Any:
        if (tracer := state.run.tracer) is not None:
            tracer.refuse_compiled(name)
        given = own.bind(*args, **kwargs)
        given.apply_defaults()
        return GraphRun(plan, state, given.arguments).run()

    names = {parameter.name for parameter in graph.parameters}
    of_state = next(each for each in ("s", "state", *(f"state_{i}" for i in range(len(names)))) if each not in names)
    first = inspect.Parameter(of_state, inspect.Parameter.POSITIONAL_ONLY)
    replayed.__module__, replayed.__qualname__, replayed.__name__ = module, qualname, name
    replayed.__signature__ = own.replace(parameters=[first, *own.parameters.values()])  # type: ignore[attr-defined]
    return replayed


def _parameters(graph: Graph) -> Iterator[inspect.Parameter]:
    for name, has_default, default, keyword_only in graph.parameters:
        kind = inspect.Parameter.KEYWORD_ONLY if keyword_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        yield inspect.Parameter(name, kind, default=default if has_default else inspect.Parameter.empty)


def lines_of(graph: Graph) -> Iterator[GraphLine]:
    line: list[Expr] = []
    stream = nodes.ROOT
    for node in graph.nodes:
        if line and not node.goes_on:
            yield GraphLine(stream, tuple(line))
            line = []
        stream = node.stream
        line.append(node.expr)
    if line:
        yield GraphLine(stream, tuple(line))


def variables_read(graph: Graph) -> Mapping[int, Set[str]]:
    found: dict[int, set[str]] = {}
    for value in (graph.returned, *(node.expr for node in graph.nodes)):
        for each in nodes.unknowns(value):
            if isinstance(each, nodes.VariableOf):
                found.setdefault(each.stream, set()).add(each.name)
    return found


class GraphRun:
    """One run of a graph."""

    def __init__(self, plan: GraphPlan, state: State, arguments: Mapping[str, Any]) -> None:
        self._plan, self._arguments = plan, arguments
        self._states: dict[int, State] = {}
        self._values: dict[int, Mapping[str, Sequence[Result | None]]] = {}  # of each stream, those that are read
        self._groups: dict[int, StateGroup[State]] = {}
        self._called: list[State] = []  # of other programs
        self._prefetched: dict[int, Prefetched] = {}  # by the streams that they are for
        self._enter(nodes.ROOT, state)

    def run(self) -> Any:
        """What the function returns; where that is a value of a call, it is waited for."""
        root = self._states[nodes.ROOT]
        if self._plan.waits:
            check_wait(root.run.backend.loop)
        error: BaseException | None = None
        try:
            for line in self._plan.lines:
                self._execute(line)
            returned = self._value(root, "what is returned", self._plan.graph.returned)
        except BaseException as why:
            error = why
            raise
        finally:
            for state in self._called:
                state.finish(error)
            self._let_go()
        return returned.get() if isinstance(returned, Result) else returned

    def _execute(self, line: GraphLine) -> None:
        stream, expr = line.stream, line.exprs[0]
        match expr:
            case _ if isinstance(expr, APPENDED):
                state = self._states[stream]
                state.extend(Concat(tuple(leaf for each in line.exprs for leaf in self._leaves(state, each))))
            case nodes.Fork(first, size):
                self._groups[first] = group = self._states[stream].fork(size)
                for index, child in enumerate(group):
                    self._enter(first + index, child)
            case nodes.Join(first, mode) if mode == nodes.COPY:
                self._states[stream].take_copied(self._groups[first][0])
            case nodes.Join(first, mode):
                self._groups[first].join(mode)
            case nodes.Call():
                self._called.append(self._entered(expr))
                self._enter(stream, self._called[-1])
            case nodes.SetVariable(name, value):
                made = self._value(self._states[stream], f"the value of {name!r}", value)
                self._states[stream].put(name, made if isinstance(made, Result) else Result.of(made))
            case nodes.Prefetch(pieces, streams):
                self._prefetch(chained(pieces), streams)
            case nodes.GetForkItem():
                """The fork made it."""

    def _enter(self, stream: int, state: State) -> None:
        self._states[stream] = state
        self._values[stream] = state.watch(self._plan.read.get(stream, ()))
        if (prefetched := self._prefetched.pop(stream, None)) is not None:
            state.when_first_called(prefetched.arrived)

    def _entered(self, call: nodes.Call) -> State:
        outer = self._states[call.outer].run
        settings = RunSettings(call.sampling, call.options, spec_tokens=call.spec_tokens, hints=call.hints)
        return State(Run(outer.backend, settings, outer, kind=call.kind))

    def _prefetch(self, prompt: Prompt, streams: tuple[int, ...]) -> None:
        run = self._states[nodes.ROOT].run
        if run.settings.hints and run.backend.capabilities.prefixes:
            prefetched = Prefetched(run.backend, prompt, len(streams))
            self._prefetched |= dict.fromkeys(streams, prefetched)
            run.backend.loop.soon(prefetched.begin)

    def _let_go(self) -> None:
        """Of what was prefetched for programs that are never called, since a line before them was refused."""
        for prefetched in self._prefetched.values():
            self._states[nodes.ROOT].run.backend.loop.soon(prefetched.arrived)

    # -- values -------------------------------------------------------------------------------------------------------

    def _leaves(self, state: State, expr: Expr) -> Iterator[Expr]:
        """What is appended for a node. Raises TypeError for an argument that cannot be."""
        match expr:
            case nodes.Argument(name):
                if (value := self._arguments[name]) is None:
                    raise TypeError(f"the argument {name!r} is None, and is appended")
                yield from leaves_of(as_expr(value))
            case nodes.VariableOf(_, name):
                yield Variable(name, self._variable(expr))
            case nodes.Formatted(of):
                name = next(nodes.unknowns(of)).name
                text = self._value(state, f"a text of {name!r}", expr)
                yield Variable(name, text) if isinstance(text, Result) else ConstantText(text)
            case Media(kind, Expr() as source, _, options):
                given = self._value(state, kind, source)
                left = {name: value for name, value in options.items() if name != "sample_rate"}
                yield replace(expr, source=source_of(kind, given, options.get("sample_rate")), options=left)
            case _:
                yield expr

    def _variable(self, of: nodes.VariableOf) -> Result:
        versions = self._values[of.stream][of.name]
        result = versions[of.version] if of.version < len(versions) else None
        if result is None:
            raise ProgramError(f"{nodes.shown(of)} is read where there is none yet")
        if of.index is None:
            return result
        index = of.index
        return mapped(result, lambda value: value[index], Failing(self._states[of.stream], nodes.shown(of)))

    def _value(self, state: State, what: str, value: Any) -> Any:
        """What a node makes of arguments and variables; a Result where it depends on calls. `what`: of an error."""
        arguments, fail = self._arguments, Failing(state, what)
        needed = list(dict.fromkeys(each for each in nodes.unknowns(value) if isinstance(each, nodes.VariableOf)))
        if not needed:
            try:
                return worked_out(value, arguments, {})
            except Exception as error:
                raise fail(error) from error
        gathered = Gathered([self._variable(each) for each in needed])

        def make(found: Sequence[Any]) -> Any:
            return worked_out(value, arguments, dict(zip(needed, found, strict=True)))

        return mapped(gathered, make, fail)
