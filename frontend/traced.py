"""The states of a function that is traced: those of a run (appending.py) whose streams lead nowhere.

Turns, scopes, names, forks and joins are the same code; here they are written down as nodes. What a run says of itself
is refused, and so are calls whose arguments only a run knows.
"""

from collections import Counter
from collections.abc import Awaitable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn, cast

from ramet.frontend import nodes
from ramet.frontend.appending import BaseState
from ramet.frontend.executor import PromptStream
from ramet.frontend.ir import Concat, ConstantText, Expr, Gen, Media, Where, as_expr, caller, check_known, leaves_of
from ramet.frontend.placeholders import PendingValue, Placeholder
from ramet.frontend.prompt import EMPTY
from ramet.frontend.recording import KnownValue, TraceRecording
from ramet.frontend.results import Gathered, Result
from ramet.frontend.run import Run, RunSettings
from ramet.frontend.variables import THOUGHT


class TraceRun(Run):
    """`root`: the stream of the program's own prompt."""

    def __init__(self, recording: TraceRecording, settings: RunSettings) -> None:
        super().__init__(recording.backend, settings)
        self.tracer: Any = recording
        self.root = nodes.ROOT


class Nowhere:
    """The stream of a prompt that nobody computes."""

    feed = error = None
    prompt = EMPTY

    def end(self) -> Result:
        return Result()

    def append(self, *_: Any) -> None:
        """As everything that is submitted to it."""

    append_value = gen = select = fork = join = begin_scope = end_scope = close = append


class NothingToAwait:
    def __await__(self) -> Generator[Any, None, Any]:
        yield from ()


class TraceState(BaseState):
    def __init__(self, run: TraceRun, stream: PromptStream | None = None, parent: BaseState | None = None) -> None:
        super().__init__(run, stream or self._new_stream(), parent)
        self._recording: TraceRecording = run.tracer
        self.number = self._recording.new_stream()
        if parent is None:
            run.root = self.number
        self._mode = nodes.GATHER  # of the join that comes next
        self._versions = Counter[str]()
        self._goes_on = False  # the next node, with the line of the one before
        self._has_failed = False  # its function

    def _new_stream(self) -> PromptStream:
        return cast(PromptStream, Nowhere())

    # -- appending ----------------------------------------------------------------------------------------------------

    def extend(self, value: Any) -> None:
        leaves = tuple(each for leaf in leaves_of(as_expr(value)) for each in self._leaves(leaf))
        with self._recording.lock:
            self._goes_on = False
            super().extend(Concat(leaves))

    def _leaves(self, leaf: Expr) -> Iterable[Expr]:
        """A leaf without marks."""
        self._recording.check(leaf)
        match leaf:
            case ConstantText(text) if self._recording.marks.stand_in(text):
                return self._parts(self._recording.marks.parts(text))
            case Placeholder(_, nodes.Text(parts)):
                return self._parts(parts)
            case Media(kind, source):
                return (replace(leaf, source=self._recording.source(kind, source)),)
        return (leaf,)

    def _parts(self, parts: Iterable[Any]) -> Iterator[Expr]:
        for part in parts:
            yield part if isinstance(part, ConstantText) else self._recording.marks.placeholder(part)

    def _append(self, leaf: Expr) -> None:
        super()._append(leaf)
        if not (isinstance(leaf, ConstantText) and leaf.text == ""):
            node = leaf._result if isinstance(leaf, Placeholder | PendingValue) else leaf
            self._recording.record(self.number, node, self._goes_on)
            self._goes_on = True
        if isinstance(leaf, Gen):
            self._note_kind(leaf)

    def _note_kind(self, leaf: Gen) -> None:
        """What is known of its values."""
        name = leaf.name or self._variables.last_unnamed
        n = {**self.run.settings.sampling, **leaf.sampling}.get("n", 1)
        num = n if n > 1 else None
        made = self._recording.made
        result = self.result(name)
        made[result] = made[result]._replace(num=num, is_number=leaf.kind in (int, float))
        if leaf.thoughts is not None:
            thought = self.result(name + THOUGHT)
            made[thought] = made[thought]._replace(num=num)

    # -- forks --------------------------------------------------------------------------------------------------------

    def fork(self, size: Any = 1, position_ids_offset: None = None) -> Any:
        check_known({"the size of a fork": size})
        with self._recording.lock:
            group = super().fork(size, position_ids_offset)
            self._recording.record(self.number, nodes.Fork(group[0].number, size))
            for index, child in enumerate(group):
                self._recording.record(child.number, nodes.GetForkItem(self.number, index))
        return group

    def append_forks(self, children: Sequence[Any], where: Where) -> None:
        super().append_forks(children, where)
        self._mode = nodes.CONCATENATE

    def gather(self, children: Sequence[Any]) -> None:
        super().gather(children)
        self._recording.record(self.number, nodes.Join(children[0].number, self._mode))
        self._mode = nodes.GATHER

    def take_copied(self, child: Any) -> None:
        super().take_copied(child)
        self._recording.record(self.number, nodes.Join(child.number, nodes.COPY))

    # -- variables ----------------------------------------------------------------------------------------------------

    def put(self, name: str, result: Result) -> None:
        super().put(name, result)
        self._versions[name] += 1
        self._recording.made.setdefault(result, KnownValue(self._variable(name)))

    def _variable(self, name: str) -> nodes.VariableOf:
        """Its value of now."""
        return nodes.VariableOf(self.number, name, self._versions[name])

    def __getitem__(self, name: str) -> Any:
        return self._known(self.result(name), self._variable(name))

    def _known(self, result: Result, variable: nodes.VariableOf) -> Any:
        """What a trace knows of a value: how many there are in a list, and those that are constants."""
        if result.done:
            return result.get()
        if isinstance(result, Gathered):
            return [self._item(one, replace(variable, index=index)) for index, one in enumerate(result.each)]
        made = self._recording.made[result]
        if made.num is None:
            return self._recording.marks.placeholder(variable, made.is_number)
        items = [replace(variable, index=index) for index in range(made.num)]
        return [self._recording.marks.placeholder(item, made.is_number) for item in items]

    def _item(self, result: Result, variable: nodes.VariableOf) -> Any:
        """Of a join's list. What is a list itself is read from the fork that made it."""
        made = self._recording.made[result]
        is_list = isinstance(result, Gathered) or made.num is not None
        return self._known(result, made.variable if is_list else variable)

    def get_var(self, name: str) -> Any:
        return self[name]

    def set_var(self, name: str, value: Any) -> None:
        check_known({"the name of a variable": name})
        self._recording.check_arguments("set_var", [name])
        made = self._recording.unmarked(value, f"{caller()} stores")
        with self._recording.lock:
            self._recording.record(self.number, nodes.SetVariable(name, made))
            if isinstance(made, nodes.Text):
                self.put(name, Result())
            else:
                self.put(name, Result.of(value))

    # -- what only a run has ------------------------------------------------------------------------------------------

    def sync(self) -> Awaitable[None]:
        """There is nothing to wait for, also where it is awaited."""
        return NothingToAwait()

    def _unknown(self, *_: Any, **__: Any) -> NoReturn:
        self._recording.marks.refuse(
            f"{caller()} asks for what is known only when the program runs, which a trace is not"
        )

    text = messages = get_meta_info = error = text_iter = text_async = text_async_iter = prompt = results = _unknown
    saved = property(_unknown)

    def finish(self, error: BaseException | None = None) -> None:
        self._has_failed = error is not None
        super().finish(error)

    def cancel(self) -> None:
        """A function that raises ends its calls, and here are none."""
        if not self._has_failed:
            self._recording.marks.refuse(f"{caller()} cancels its run, for which a graph has no node")


class AsyncTraceState(TraceState):
    """Of an `async def` program: its variables are awaited."""

    def __getitem__(self, name: str) -> PendingValue:
        return PendingValue(name, self._variable(name), super().__getitem__(name))

    def plain(self) -> TraceState:
        """As whoever called the program sees it."""
        state = TraceState.__new__(TraceState)
        state.__dict__ = self.__dict__
        return state
