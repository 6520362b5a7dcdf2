"""`@function`: what a user's function becomes, and what becomes of its graph."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any, Literal, Self, overload

from ramet.frontend.backends.base import Backend
from ramet.frontend.backends.chosen import as_backend, backend_of
from ramet.frontend.batch import ProgramBatch
from ramet.frontend.canonical import HasBody
from ramet.frontend.compile import as_function
from ramet.frontend.errors import ProgramError
from ramet.frontend.graph import Graph
from ramet.frontend.graph_json import from_json, to_json
from ramet.frontend.nodes import ROOT, Parameter
from ramet.frontend.passes import compiled, constant_prefix, explain
from ramet.frontend.prompt import Prompt
from ramet.frontend.runnable import Runnable, RunOptions, current_tracer
from ramet.frontend.state import State
from ramet.frontend.trace import beginning, trace


class Program(Runnable, HasBody):
    """A program: run() for one run, run_batch() for many, bind() for one with some of its arguments."""

    @property
    def body(self) -> Any:
        return self.function

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: Any) -> Self:
        """It never changes, and is copied as Python copies functions."""
        return self

    def __reduce__(self) -> Any:
        """By its name, as functions are pickled, with its bound arguments. Raises TypeError."""
        module, name = self.function.__module__, getattr(self.function, "__qualname__", "")
        with suppress(ImportError, AttributeError):
            found = _named(module, name, {})
            if isinstance(found, Program) and found.function is self.function:
                return _named, (module, name, self.bound)
        raise TypeError(
            f"cannot pickle {name or self.function!r}: programs go by their names, and {module} has none of it"
        )

    def run_batch(
        self,
        batch_kwargs: Sequence[Any],
        *,
        num_threads: int | Literal["auto"] = "auto",
        progress_bar: bool = False,
        generator_style: bool = False,
        on_error: Literal["raise", "return"] = "raise",
        resume: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> list[State] | Iterator[State]:
        """One run for each dict or tuple of arguments; the states, in their order. `options`: as run() takes them.

        num_threads: programs that run at once. generator_style: an iterator, which yields each state when it and those
        before it are done. on_error: "raise": the first failure ends the others and is raised as BatchFailed; "return":
        a state that failed is returned as the others are, and tells why by state.error(). resume: a file to which each
        finished program is written; programs that it has already are not run again, and their values are what JSON
        makes of them. Raises TypeError and ValueError for arguments that do not fit.
        """
        if on_error not in ("raise", "return"):
            raise ValueError(f"on_error is {on_error!r}, must be 'raise' or 'return'")
        if current_tracer() is not None:
            raise ProgramError("run_batch is called inside of a traced program, whose graph has single calls")
        batch = ProgramBatch(self, batch_kwargs, num_threads, options, resume, self.body)
        states = batch.results(progress_bar, on_error == "raise")
        return states if generator_style else list(states)

    def trace(self, backend: Any = None, **known: Any) -> Graph:
        """Its graph: the function is executed once, with arguments that nobody knows yet, and no call is made.

        `known`: arguments that the graph has as constants, such as numbers of forks. `backend`: what it cannot do is
        refused. Raises ProgramError where the function looks at a value that only a run knows.
        """
        if "backend" in self.own_names:
            known, backend = ({"backend": backend, **known} if backend is not None else known), None
        return trace(self, known, None if backend is None else as_backend(backend))

    def compile(self, backend: Any = None, **known: Any) -> "Compiled":
        """A program that runs its graph instead of the function, with movable() texts moved and prefixes prefetched."""
        return Compiled(self.trace(backend, **known), backend)

    def cache(self, backend: Any = None) -> str:
        """Compute what its prompt begins with in every run, and keep it in the prefix cache for a minute; that text.

        For it the function is executed with arguments that nobody knows yet, until it looks at one. Raises Unsupported.
        """
        return cached(constant_prefix(beginning(self)), backend)


def _named(module: str, name: str, bound: Mapping[str, Any]) -> Any:
    """Raises ImportError and AttributeError."""
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found.bind(**bound) if bound else found


def cached(prefix: Prompt, backend: Any) -> str:
    """The text of a prefix that the backend computes and keeps for a minute."""
    chosen = backend_of(backend, None)
    if prefix.num_chars:
        chosen.compute_prefix(prefix)
    return prefix.text()


class Compiled(Program):
    """A graph as a program. It runs where the graph's calls can: the function it comes from is not needed."""

    def __init__(self, graph: Graph, backend: Any = None) -> None:
        """`backend`: of runs that name none. Raises ValueError for what is no graph."""
        self.graph = compiled(graph)
        self._backend = backend
        super().__init__(as_function(self.graph), graph.spec_tokens)

    @property
    def body(self) -> Any:
        return self.graph.content

    def __reduce__(self) -> Any:
        """With its graph. Raises ProgramError for what JSON has no form of."""
        return type(self).from_json, (self.to_json(), self._backend)

    def bind(self, **arguments: Any) -> Self:
        bound = type(self)(self.graph, self._backend)
        self.check_names(arguments)
        bound.bound = {**self.bound, **arguments}
        return bound

    def backend_for(self, options: RunOptions) -> Backend:
        return super().backend_for(options if options.backend is not None else options._replace(backend=self._backend))

    @property
    def is_awaited(self) -> bool:
        """As its function is."""
        return self.graph.is_async

    def trace(self, backend: Any = None, **known: Any) -> Graph:
        """Its graph as it is. Raises ProgramError where arguments are given, or were bound."""
        if known or self.bound:
            raise ProgramError(f"{self.__name__} is compiled already: trace the function it comes from")
        return self.graph

    def compile(self, backend: Any = None, **known: Any) -> "Compiled":
        raise ProgramError(f"{self.__name__} is compiled already")

    def cache(self, backend: Any = None) -> str:
        """As of its function, with what its graph begins with."""
        return cached(constant_prefix(self.graph.streams[ROOT]), self._backend if backend is None else backend)

    def print_graph(self) -> None:
        self.graph.print_graph_dfs()

    def to_json(self) -> str:
        """The graph; from_json() of it is this program. Bound arguments are defaults, which are given by name.

        Raises ProgramError for what JSON has no form of.
        """
        free = [each for each in self.graph.parameters if each.name not in self.bound]
        bound = [Parameter(name, True, value, keyword_only=True) for name, value in self.bound.items()]
        return to_json(replace(self.graph, parameters=(*free, *bound)))

    @classmethod
    def from_json(cls, text: str, backend: Any = None) -> Self:
        """Raises ValueError for what is no graph."""
        return cls(from_json(text), backend)

    def explain(self) -> str:
        """What its runs share with each other, and how many calls wait for one another."""
        return explain(self.graph)


@overload
def function(func: Callable[..., Any]) -> Program: ...


@overload
def function(func: None = None, num_api_spec_tokens: int | None = None) -> Callable[[Callable[..., Any]], Program]: ...


def function(func: Callable[..., Any] | None = None, num_api_spec_tokens: int | None = None) -> Any:
    """A program of a function, plain or async, whose first parameter is the state of a prompt, by any name.

    `num_api_spec_tokens`: each call of a service generates so many tokens on, for the calls that follow
    (frontend/speculation.py).
    """
    if func is not None:
        return Program(func, num_api_spec_tokens)
    return lambda func: Program(func, num_api_spec_tokens)
