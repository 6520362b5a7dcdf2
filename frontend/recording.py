"""What the states of one trace share (traced.py): the nodes so far, and what is known of values that are to come.

Decides what becomes of a value that a function stores or returns, and that arguments of calls are known.
"""

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, cast

from ramet.frontend.appending import BaseState, StateGroup
from ramet.frontend.backends.base import Backend
from ramet.frontend.ir import Expr, Gen, ScopeBegin, ScopeEnd, Select, caller, check_known
from ramet.frontend.nodes import GraphNode, Text, VariableOf, unknowns
from ramet.frontend.placeholders import Marks, PendingValue, Placeholder
from ramet.frontend.results import Result


class KnownValue(NamedTuple):
    """What is known of a value that is still to come. `num`: of values in a list; None: it is no list."""

    variable: VariableOf  # the first that had it
    num: int | None = None
    is_number: bool = False


class TraceRecording:
    """What the states of one trace share: the nodes so far, and the values that stand in texts as marks."""

    def __init__(self, backend: Backend) -> None:
        self.backend, self.marks = backend, Marks()
        self.nodes: list[GraphNode] = []
        self.made: dict[Result, KnownValue] = {}
        self.lock = threading.RLock()  # a line's nodes follow one another, and a fork's streams are numbered in a row
        self._num_streams = 0

    def new_stream(self) -> int:
        with self.lock:
            self._num_streams += 1
            return self._num_streams - 1

    def record(self, stream: int, expr: Expr, goes_on: bool = False) -> None:
        """What comes after a refusal is of a program that has caught it, and nobody knows whether it would."""
        with self.lock:  # not inside of another thread's line
            if self.marks.refusal is None:
                self.nodes.append(GraphNode(stream, expr, goes_on))

    def unmarked(self, value: Any, who: str) -> Any:
        """A value that a function stores or returns, as a node of the graph has it. `who`: of a refusal."""
        made = partial(self.unmarked, who=who)
        match value:
            case Placeholder(_, node) | PendingValue(_, node):
                return node
            case str() if self.marks.stand_in(value):
                return Text(tuple(cast(Any, self.marks.parts(value))))
            case tuple() if hasattr(value, "_make"):  # a named tuple
                return value._make(map(made, value))
            case list() | tuple():
                kind = list if isinstance(value, list) else tuple
                return kind(map(made, value))
            case dict() if not self.marks.has_unknown(list(value)):
                return {key: made(each) for key, each in value.items()}
            case BaseState() | StateGroup():
                self.marks.refuse(f"{who} a state, which a graph has none of")
            case Expr():
                self.marks.refuse(f"{who} {type(value).__name__}, which is no value")
        if self.marks.has_unknown(value):
            where = "a key of a dict" if isinstance(value, dict) else f"a {type(value).__name__}"
            self.marks.refuse(f"{who} {where} that has a value in it which only a run knows")
        return value

    def check_arguments(self, what: str, arguments: Any) -> None:
        """Raises ProgramError where one is known only when the program runs."""
        if self.marks.has_unknown(arguments):
            self.marks.refuse(
                f"{caller()}: an argument of {what} is known only when the program runs: "
                "trace(NAME=...) makes an argument of the program known"
            )

    def check(self, expr: Expr) -> None:
        match expr:
            case Gen(name, _, sampling, options, held, thoughts=thoughts):
                self.check_arguments("gen", [name, sampling, options, held.value if held else None, thoughts])
            case Select(name, _, choices, _, temperature, options):
                self.check_arguments("select", [name, *choices, temperature, options])
            case ScopeBegin(name) | ScopeEnd(name):
                self.check_arguments("var_scope", [name])

    def source(self, kind: str, source: Any) -> Any:
        """Of media: what is made of arguments is known where the graph runs, before anything is sent."""
        made = self.unmarked(source, f"{caller()}: {kind}() takes")
        if any(isinstance(value, VariableOf) for value in unknowns(made)):
            self.check_arguments(kind, source)
        return made

    def check_call(self, name: str, arguments: Mapping[str, Any]) -> None:
        """What the run of a program inside of a traced one is given is known, and it has no clock and no readers."""
        for argument, value in arguments.items():
            check_known({argument: value})
            self.check_arguments(f"{name}({argument}=...)", value)
            if argument in ("backend", "stream", "timeout_s") and value is not None and value is not False:
                self.marks.refuse(
                    f"{caller()}: a program that is called inside of a traced one has no {argument} of its own"
                )
