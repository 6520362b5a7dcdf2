"""Tracing: a program's function is executed once, with arguments that nobody knows yet, and becomes a graph.

Section 4.3.1 of the SGLang paper. What a function does with an unknown value may only be to append it, to put it into
an f-string, to store, pass or return it (placeholders.py); whatever looks at it is refused, with the line. The states
that it gets write down what it does (traced.py). No call is made.
"""

import asyncio
import inspect
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from ramet.frontend.backends.base import Backend, Capabilities, Completion
from ramet.frontend.errors import ProgramError
from ramet.frontend.graph import Graph
from ramet.frontend.ir import Expr
from ramet.frontend.loop import on_thread
from ramet.frontend.nodes import ROOT, Argument, Call, Parameter
from ramet.frontend.recording import TraceRecording
from ramet.frontend.runnable import CURRENT, SAMPLED, Runnable
from ramet.frontend.state import State
from ramet.frontend.traced import AsyncTraceState, TraceRun, TraceState
from ramet.ipc.waits import waited

OF_RUNS = SAMPLED | {"sampling_params", "backend", "stream", "timeout_s", "hints"}  # arguments of a run itself


class Anything(Backend):
    """Refuses nothing and calls nobody: of traces for which no backend is given."""

    name = "trace"
    reads_files = False
    capabilities = Capabilities(
        held=frozenset({"regex", "json_schema", "ebnf", "structural_tag"}), media=frozenset({"image", "video", "audio"})
    )

    async def generate(self, *_: Any) -> list[Completion]:
        raise AssertionError("a trace makes no call")


class Tracer(TraceRecording):
    """One trace: what it has written down, and the programs that the function calls."""

    def call(self, program: Runnable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TraceState:
        if program.is_async:
            state: TraceState = waited(
                on_thread("ramet-trace", lambda: asyncio.run(self.call_async(program, args, kwargs)))
            )
            return state
        state, own = self._entered(program, kwargs)
        program.execute(cast(State, state), args, own)
        return state

    async def call_async(self, program: Runnable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TraceState:
        if not program.is_async:
            return self.call(program, args, kwargs)
        state, own = self._entered(program, kwargs)
        await program.execute_async(cast(Any, state), args, own)
        return cast(AsyncTraceState, state).plain()

    def refuse_compiled(self, name: str) -> None:
        self.marks.refuse(f"{name} is compiled already: call the function it comes from")

    def _entered(self, program: Runnable, kwargs: Mapping[str, Any]) -> tuple[TraceState, dict[str, Any]]:
        names = [name for name in kwargs if name in OF_RUNS and name not in program.own_names]
        self.check_call(program.__name__, {name: kwargs[name] for name in names})
        own, options = program.divided(kwargs)
        settings = program.settings(options)
        current = CURRENT.get()
        outer = current.run if current is not None else None
        called_by = outer.root if isinstance(outer, TraceRun) else ROOT
        call = Call(
            called_by, program.kind, settings.sampling, settings.options, settings.spec_tokens, options.hints
        )  # fmt: skip
        with self.lock:
            state = new_state(program, TraceRun(self, settings))
            self.record(state.number, call)
        return state, own


def trace(program: Runnable, known: Mapping[str, Any], backend: Backend | None) -> Graph:
    """The graph of a program. Arguments in `known` are constants of it, all others its parameters.

    `backend`: what it cannot do is refused. Raises ProgramError for a function that looks at a value which only a run
    knows, also where it catches that, and TypeError for an argument that the program does not have.
    """
    tracer = Tracer(backend or Anything())
    parameters = parameters_of(program, known)
    returned = None
    try:
        state = executed(program, known, parameters, tracer)
        returned = tracer.unmarked(state.ret_value, f"{program.__name__} returns")
    except Exception as error:
        if error is not tracer.marks.refusal and tracer.marks.refusal is not None:
            raise tracer.marks.refusal from error
        raise
    if tracer.marks.refusal is not None:
        raise tracer.marks.refusal
    name = f"{program.function.__module__}:{program.function.__qualname__}"
    nodes = tuple(tracer.nodes)
    return Graph(name, parameters, nodes, returned, program.num_api_spec_tokens, program.is_async)


def beginning(program: Runnable) -> list[Expr]:
    """What a program appends to its own prompt before it looks at an argument, or at a value of a call.

    What it raises then is of no interest: it may be of the values that it was given.
    """
    tracer = Tracer(Anything())
    with suppress(Exception):
        executed(program, {}, parameters_of(program, {}), tracer)
    return [node.expr for node in tracer.nodes if node.stream == ROOT]


def executed(
    program: Runnable, known: Mapping[str, Any], parameters: Sequence[Parameter], tracer: Tracer
) -> TraceState:
    """Its state after its function was executed."""
    state = new_state(program, TraceRun(tracer, program.settings()))
    unknown = {each.name: tracer.marks.placeholder(Argument(each.name)) for each in parameters}
    own = {**known, **unknown}
    if program.is_async:
        coroutine: Coroutine[Any, Any, None] = program.execute_async(cast(Any, state), (), own)
        waited(on_thread("ramet-trace", lambda: asyncio.run(coroutine)))
    else:
        program.execute(cast(State, state), (), own)
    return state


def new_state(program: Runnable, run: TraceRun) -> TraceState:
    return AsyncTraceState(run) if program.is_async else TraceState(run)


def parameters_of(program: Runnable, known: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """Those of its function that are neither known nor bound. Raises ProgramError for what cannot be given by name."""
    program.check_names(known)
    found = []
    for parameter in list(inspect.signature(program.function).parameters.values())[1:]:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            raise ProgramError(
                f"{program.__name__}: the parameter {parameter.name!r} has no name that a graph can give it"
            )
        if parameter.kind is inspect.Parameter.VAR_KEYWORD or parameter.name in {**program.bound, **known}:
            continue
        has_default = parameter.default is not inspect.Parameter.empty
        default = parameter.default if has_default else None
        keyword_only = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        found.append(Parameter(parameter.name, has_default, default, keyword_only))
    return tuple(found)
