"""A graph as a function again: its nodes go to the states of a run in their order. Section 4.3.1 of the SGLang paper.

Nothing in it waits. Each node is submitted to its stream at once, and a stream waits for values of others by itself, so
calls run beside each other also where the program's own function would have waited for a value to append it.
"""

import inspect
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeAlias

from ramet.frontend.errors import ProgramError
from ramet.frontend.forks import StateGroup
from ramet.frontend.graph import (
    COPY,
    ROOT,
    Argument,
    Call,
    Fork,
    Formatted,
    GetForkItem,
    Graph,
    Join,
    Prefetch,
    SetVariable,
    Text,
    Unknown,
    VariableOf,
    shown,
    unknowns,
)
from ramet.frontend.hints import Prefetched
from ramet.frontend.ir import ConstantText, Expr, Variable
from ramet.frontend.prompt import Prompt, chained
from ramet.frontend.results import Gathered, Result
from ramet.frontend.run import Run, Settings
from ramet.frontend.state import State

Reads: TypeAlias = Mapping[int, Set[str]]


def as_function(graph: Graph) -> Callable[..., Any]:
    """What `function` makes a program of. Its parameters are the graph's, its name is that of the function traced."""
    signature = inspect.Signature([
        inspect.Parameter("s", inspect.Parameter.POSITIONAL_ONLY),
        *(
            inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=default if has_default else inspect.Parameter.empty,
            )
            for name, has_default, default in graph.parameters
        ),
    ])  # fmt: skip

    read = variables_read(graph)

    def replayed(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        arguments = dict(given.arguments)
        return Replay(graph, read, arguments.pop("s"), arguments).run()

    module, _, qualname = graph.name.partition(":")
    replayed.__module__, replayed.__qualname__ = module, qualname
    replayed.__name__ = qualname.rpartition(".")[2]
    replayed.__signature__ = signature  # type: ignore[attr-defined]
    return replayed


def variables_read(graph: Graph) -> Reads:
    """Of each stream, those whose values are used somewhere."""
    found: dict[int, set[str]] = {}
    for value in (graph.returned, *(expr for _, expr in graph.nodes)):
        for each in unknowns(value):
            if isinstance(each, VariableOf):
                found.setdefault(each.stream, set()).add(each.name)
    return found


class Replay:
    """One run of a graph. `read`: variables_read() of it."""

    def __init__(self, graph: Graph, read: Reads, state: State, arguments: Mapping[str, Any]) -> None:
        self._graph, self._arguments = graph, arguments
        self._states = {ROOT: state}
        self._groups: dict[int, StateGroup[State]] = {}
        self._called: list[State] = []  # of other programs
        self._prefetched: dict[int, Prefetched] = {}  # by the streams that they are for
        # of each stream the versions of its variables
        self._read = {stream: {name: list[Result | None]([None]) for name in names} for stream, names in read.items()}

    def run(self) -> Any:
        """What the function returns; where that is a value of a call, it is waited for."""
        error: BaseException | None = None
        try:
            for stream, expr in self._graph.nodes:
                self._execute(stream, expr)
                self._note(stream)
        except BaseException as why:
            error = why
            raise
        finally:
            for state in self._called:
                state.finish(error)
        returned = self._value(self._graph.returned)
        return returned.get() if isinstance(returned, Result) else returned

    def _execute(self, stream: int, expr: Expr) -> None:
        match expr:
            case Argument(name):
                self._states[stream].extend(self._arguments[name])
            case VariableOf():
                self._states[stream].extend(Variable(expr.name, self._variable(expr)))
            case Formatted():
                self._states[stream].extend(self._formatted(expr))
            case Fork(first, size):
                self._groups[first] = group = self._states[stream].fork(size)
                for index, child in enumerate(group):
                    self._states[first + index] = child
                    for name, versions in self._read.get(first + index, {}).items():
                        versions[0] = child.result(name) if name in child else None
            case Join(first, mode) if mode == COPY:
                self._states[stream].take_copied(self._groups[first][0])
            case Join(first, mode):
                self._groups[first].join(mode)
            case Call():
                self._states[stream] = state = self._entered(expr)
                self._called.append(state)
                if (prefetched := self._prefetched.get(stream)) is not None:
                    state.when_first_called(prefetched.came)
            case SetVariable(name, value):
                made = self._value(value)
                self._states[stream].put(name, renamed(made) if isinstance(made, Result) else Result.of(made))
            case Prefetch(pieces, streams):
                self._prefetch(chained(pieces), streams)
            case GetForkItem():
                """The fork made it."""
            case _:
                self._states[stream].extend(expr)

    def _entered(self, call: Call) -> State:
        outer = self._states[call.outer].run
        settings = Settings(call.sampling, call.options, spec_tokens=call.spec_tokens, hints=call.hints)
        return State(Run(outer.backend, settings, outer, call.timeout_s, call.kind))

    def _prefetch(self, prompt: Prompt, streams: tuple[int, ...]) -> None:
        run = self._states[ROOT].run
        if run.settings.hints and run.backend.capabilities.prefixes:
            prefetched = Prefetched(run.backend, prompt, len(streams))
            self._prefetched |= dict.fromkeys(streams, prefetched)
            run.backend.loop.soon(prefetched.begin)

    # -- values -------------------------------------------------------------------------------------------------------

    def _note(self, stream: int) -> None:
        """The versions of its variables, after a node."""
        if stream not in self._read:
            return
        state = self._states[stream]
        for name, versions in self._read[stream].items():
            if name in state and (result := state.result(name)) is not versions[-1]:
                versions.append(result)

    def _variable(self, of: VariableOf) -> Result:
        versions = self._read[of.stream][of.name]
        result = versions[of.version] if of.version < len(versions) else None
        if result is None:
            raise ProgramError(f"{shown(of)} is read where there is none yet")
        return result if of.index is None else mapped(result, lambda value: value[of.index])

    def _formatted(self, expr: Formatted) -> Expr:
        if isinstance(expr.value, Argument):
            return ConstantText(expr.of(self._arguments[expr.value.name]))
        return Variable(expr.value.name, mapped(self._variable(expr.value), expr.of))

    def _value(self, value: Any) -> Any:
        """What a SetVariable has: a Result where it depends on calls."""
        needed = [each for each in unknowns(value) if isinstance(each, VariableOf)]
        if not needed:
            return self._built(value, {})
        if isinstance(value, VariableOf):
            return self._variable(value)
        gathered = Gathered([self._variable(each) for each in needed])
        return mapped(gathered, lambda found: self._built(value, dict(zip(needed, found, strict=True))))

    def _built(self, value: Any, found: Mapping[Unknown, Any]) -> Any:
        build = partial(self._built, found=found)
        match value:
            case Argument(name):
                return self._arguments[name]
            case VariableOf():
                return found[value]
            case Formatted():
                return value.of(build(value.value))
            case Text(parts):
                return "".join(map(build, parts))
            case ConstantText(text):
                return text
            case list() | tuple():
                return type(value)(map(build, value))
            case dict():
                return {key: build(each) for key, each in value.items()}
        return value


def renamed(result: Result) -> Result:
    """The same value, of another variable."""
    return mapped(result, lambda value: value)


def mapped(result: Result, function: Callable[[Any], Any]) -> Result:
    """What a function makes of a value when it is there. Fails as the value does, or with what the function raises."""
    made = Result()

    def done(future: "Future[Any]") -> None:
        try:
            made.set(function(future.result()), result.meta)
        except BaseException as error:  # noqa: BLE001 - given to whoever uses the value
            made.fail(error)

    result.future.add_done_callback(done)
    return made
