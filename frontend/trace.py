"""Tracing: a program's function is executed once, with arguments that nobody knows yet, and becomes a graph.

Section 4.3.1 of the SGLang paper. What a function does with an unknown value may only be to append it, to put it into
an f-string, to store, pass or return it; whatever looks at it is refused, with the line. States of a trace are those of
a run (appending.py) whose streams lead nowhere: turns, scopes, names and joins are the same code. No call is made.
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Coroutine, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn, cast

from ramet.frontend.appending import BaseState
from ramet.frontend.backends.base import Backend, Capabilities, Completion
from ramet.frontend.errors import ProgramError
from ramet.frontend.executor import Stream
from ramet.frontend.forks import StateGroup
from ramet.frontend.graph import (
    CONCATENATE,
    COPY,
    GATHER,
    ROOT,
    Argument,
    Call,
    Fork,
    Formatted,
    GetForkItem,
    Graph,
    Join,
    Node,
    Parameter,
    SetVariable,
    Text,
    VariableOf,
)
from ramet.frontend.ir import Concat, ConstantText, Expr, Gen, Select, Where, as_expr, caller
from ramet.frontend.loop import on_thread
from ramet.frontend.placeholders import HALF, Marks, Placeholder, has_unknown
from ramet.frontend.prompt import EMPTY
from ramet.frontend.results import Gathered, Result
from ramet.frontend.run import Run, Settings
from ramet.frontend.runnable import CURRENT, Runnable
from ramet.frontend.state import State


class Anything(Backend):
    """Refuses nothing and calls nobody: of traces for which no backend is given."""

    name = "trace"
    capabilities = Capabilities(
        held=frozenset({"regex", "json_schema", "ebnf", "structural_tag"}), media=frozenset({"image", "video", "audio"})
    )

    async def generate(self, *_: Any) -> list[Completion]:
        raise AssertionError("a trace makes no call")


class Tracer:
    """What the states of one trace share: the nodes so far, and the values that stand in texts as marks."""

    def __init__(self, backend: Backend | None) -> None:
        self.backend = backend or Anything()
        self.nodes: list[Node] = []
        self.lengths: dict[Result, int] = {}  # of values that are lists: gen(n=...)
        self._num_streams = 0
        self.marks = Marks()

    def new_stream(self) -> int:
        self._num_streams += 1
        return self._num_streams - 1

    def record(self, stream: int, expr: Expr) -> None:
        self.nodes.append(Node(stream, expr))

    def unmarked(self, value: Any) -> Any:
        """A value that a function stores or returns, as a node of the graph has it."""
        match value:
            case Placeholder():
                return value.result
            case str() if HALF.search(value):
                return Text(tuple(self.marks.parts(value)))
            case list() | tuple():
                return type(value)([self.unmarked(each) for each in value])
            case dict():
                return {key: self.unmarked(each) for key, each in value.items()}
            case BaseState() | StateGroup():
                raise ProgramError(f"{caller()} stores or returns a state, which a graph has none of")
        return value

    def check(self, expr: Expr) -> None:
        """Raises ProgramError for a call whose arguments only a run knows."""
        match expr:
            case Gen(name, _, sampling, options, held):
                unknown = has_unknown([name, *sampling.values(), *options.values(), held.value if held else None])
            case Select(name, _, choices):
                unknown = has_unknown([name, *choices])
            case _:
                return
        if unknown:
            raise ProgramError(
                f"{caller()}: an argument of {type(expr).__name__.lower()} is known only when the program runs: "
                "trace(NAME=...) makes an argument of the program known"
            )

    # -- programs that the function calls -----------------------------------------------------------------------------

    def call(self, program: Runnable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "TraceState":
        if program.is_async:
            state: TraceState = on_thread(
                "ramet-trace", lambda: asyncio.run(self.call_async(program, args, kwargs))
            ).result()
            return state
        state, own = self._entered(program, kwargs)
        program.execute(cast(State, state), args, own)
        return state

    async def call_async(self, program: Runnable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "TraceState":
        if not program.is_async:
            return self.call(program, args, kwargs)
        state, own = self._entered(program, kwargs)
        await program.execute_async(cast(Any, state), args, own)
        return state

    def _entered(self, program: Runnable, kwargs: Mapping[str, Any]) -> "tuple[TraceState, dict[str, Any]]":
        own, options = program.divided(kwargs)
        if options.backend is not None or options.stream:
            name = "backend" if options.backend is not None else "stream"
            raise ProgramError(f"{caller()}: a program that is called inside of a traced one has no {name} of its own")
        settings = program.settings(options)
        current = CURRENT.get()
        outer = current.run if current is not None else None
        state = TraceState(TraceRun(self, settings))
        called_by = outer.root if isinstance(outer, TraceRun) else ROOT
        call = Call(
            called_by, program.kind, settings.sampling, settings.options, settings.spec_tokens, options.timeout_s,
            options.hints,
        )  # fmt: skip
        self.record(state.number, call)
        return state, own


class TraceRun(Run):
    """`root`: the stream of the program's own prompt."""

    def __init__(self, tracer: Tracer, settings: Settings) -> None:
        super().__init__(tracer.backend, settings)
        self.tracer: Tracer = tracer
        self.root = ROOT


class Nowhere:
    """The stream of a prompt that nobody computes."""

    feed = error = None
    prompt = EMPTY

    def end(self) -> Result:
        return Result()

    def append(self, *_: Any) -> None:
        """As everything that is submitted to it."""

    append_value = gen = select = fork = join = begin_scope = end_scope = close = append


class TraceState(BaseState):
    def __init__(self, run: TraceRun, stream: Stream | None = None, parent: BaseState | None = None) -> None:
        super().__init__(run, stream or self._new_stream(), parent)
        self._tracer = run.tracer
        self.number = run.tracer.new_stream()
        if parent is None:
            run.root = self.number
        self._mode = GATHER  # of the join that comes next
        self._versions = Counter[str]()

    def _new_stream(self) -> Stream:
        return cast(Stream, Nowhere())

    def extend(self, value: Any) -> None:
        leaves: list[Expr] = []
        for leaf in as_expr(value).leaves():
            self._tracer.check(leaf)
            if isinstance(leaf, ConstantText) and HALF.search(leaf.text):
                parts = self._tracer.marks.parts(leaf.text)
                leaves += [
                    self._tracer.marks.placeholder(part) if isinstance(part, Formatted) else part for part in parts
                ]
            else:
                leaves.append(leaf)
        super().extend(Concat(tuple(leaves)))

    def _append(self, leaf: Expr) -> None:
        super()._append(leaf)
        if isinstance(leaf, Placeholder):
            self._tracer.record(self.number, leaf.result)
        elif not (isinstance(leaf, ConstantText) and leaf.text == ""):
            self._tracer.record(self.number, leaf)
        if isinstance(leaf, Gen) and (n := leaf.sampling.get("n", 1)) > 1:
            self._tracer.lengths[self.result(leaf.name or self._variables.last_unnamed)] = n

    def fork(self, size: Any = 1, position_ids_offset: None = None) -> Any:
        if isinstance(size, Placeholder):
            size.looked_at()
        group = super().fork(size, position_ids_offset)
        self._tracer.record(self.number, Fork(group[0].number, size))
        for index, child in enumerate(group):
            self._tracer.record(child.number, GetForkItem(self.number, index))
        return group

    def append_forks(self, children: Sequence[Any], where: Where) -> None:
        super().append_forks(children, where)
        self._mode = CONCATENATE

    def gather(self, children: Sequence[Any]) -> None:
        super().gather(children)
        self._tracer.record(self.number, Join(children[0].number, self._mode))
        self._mode = GATHER

    def take_copied(self, child: Any) -> None:
        super().take_copied(child)
        self._tracer.record(self.number, Join(child.number, COPY))

    def __getitem__(self, name: str) -> Any:
        result = self.result(name)
        if result.done:
            return result.get()
        variable = VariableOf(self.number, name, self._versions[name])
        num = len(result.each) if isinstance(result, Gathered) else self._tracer.lengths.get(result)
        if num is None:
            return self._tracer.marks.placeholder(variable)
        return [self._tracer.marks.placeholder(replace(variable, index=index)) for index in range(num)]

    def put(self, name: str, result: Result) -> None:
        super().put(name, result)
        self._versions[name] += 1

    def get_var(self, name: str) -> Any:
        return self[name]

    def set_var(self, name: str, value: Any) -> None:
        made = self._tracer.unmarked(value)
        self._tracer.record(self.number, SetVariable(name, made))
        if isinstance(made, Text):
            self.put(name, Result())
        else:
            self.put(name, Result.of(value))

    def sync(self) -> Awaitable[None]:
        """There is nothing to wait for, also where it is awaited."""
        return Done()

    def _unknown(self, *_: Any, **__: Any) -> NoReturn:
        raise ProgramError(f"{caller()} asks for what is known only when the program runs, which a trace is not")

    text = messages = get_meta_info = error = text_iter = text_async_iter = prompt = _unknown


class Done:
    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


def trace(program: Runnable, known: Mapping[str, Any], backend: Backend | None) -> Graph:
    """The graph of a program. Arguments in `known` are constants of it, all others its parameters.

    `backend`: what it cannot do is refused. Raises ProgramError for a function that looks at a value which only a run
    knows, and TypeError for an argument that the program does not have.
    """
    tracer = Tracer(backend)
    parameters, state = _executed(program, known, tracer)
    returned = tracer.unmarked(state.ret_value)
    name = f"{program.function.__module__}:{program.function.__qualname__}"
    return Graph(name, parameters, tuple(tracer.nodes), returned, program.num_api_spec_tokens)


def beginning(program: Runnable) -> list[Expr]:
    """What a program appends to its own prompt before it looks at an argument, or at a value of a call."""
    tracer = Tracer(None)
    with suppress(ProgramError):
        _executed(program, {}, tracer)
    return [expr for stream, expr in tracer.nodes if stream == ROOT]


def _executed(program: Runnable, known: Mapping[str, Any], tracer: Tracer) -> tuple[tuple[Parameter, ...], TraceState]:
    """Its parameters, and its state after its function was executed."""
    program.check_names(known)
    bound = {**program.bound, **known}
    parameters = tuple(each for each in _parameters(program) if each.name not in bound)
    state = TraceState(TraceRun(tracer, program.settings()))
    unknown = {each.name: tracer.marks.placeholder(Argument(each.name)) for each in parameters}
    own = {**known, **unknown}
    if program.is_async:
        coroutine: Coroutine[Any, Any, None] = program.execute_async(cast(Any, state), (), own)
        on_thread("ramet-trace", lambda: asyncio.run(coroutine)).result()
    else:
        program.execute(cast(State, state), (), own)
    return parameters, state


def _parameters(program: Runnable) -> list[Parameter]:
    """Raises ProgramError for what cannot be given by name."""
    found = []
    for parameter in list(inspect.signature(program.function).parameters.values())[1:]:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            raise ProgramError(
                f"{program.__name__}: the parameter {parameter.name!r} has no name that a graph can give it"
            )
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            has_default = parameter.default is not inspect.Parameter.empty
            found.append(Parameter(parameter.name, has_default, parameter.default if has_default else None))
    return found
