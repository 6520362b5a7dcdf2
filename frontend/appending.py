"""What may be done with the state of a prompt without waiting: `s += ...`, `s.fork(3)`, `with s.user():`.

What may not be appended is refused at the user's line (places.py); what takes time is submitted to the state's stream.
One state is appended to by one thread at a time; forks may go to others. state.py adds what waits for values.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Generic, Self, TypeVar

from ramet.frontend import api, ir
from ramet.frontend.backends.base import PromptPlace
from ramet.frontend.errors import CallFailed, ProgramError
from ramet.frontend.executor import PromptStream
from ramet.frontend.loop import check_wait
from ramet.frontend.places import after
from ramet.frontend.prompt import MediaPiece, Prompt, TurnBegin, TurnEnd
from ramet.frontend.results import Result
from ramet.frontend.run import Run
from ramet.frontend.speculation import SavedCalls
from ramet.frontend.variables import THOUGHT, StateVariables
from ramet.ipc.owned import NotCopied

ELSEWHERE = -1  # some other thread


S = TypeVar("S", bound="BaseState")


class NodeWords:
    """The nodes as methods: s.gen(...) is gen(...), as the paper's Figures 1 and 4 write it."""

    gen = staticmethod(api.gen)
    gen_int = staticmethod(api.gen_int)
    gen_string = staticmethod(api.gen_string)
    select = staticmethod(api.select)
    image = staticmethod(api.image)
    video = staticmethod(api.video)
    audio = staticmethod(api.audio)
    movable = staticmethod(api.movable)
    separate_reasoning = staticmethod(api.separate_reasoning)


class BaseState(NodeWords, StateVariables, NotCopied):
    """What states of plain and of async programs share: all that returns at once."""

    only_one = "it is a run of a program; s.copy() and s.fork() branch it, and s.text() and s[NAME] are its results"

    def __init__(self, run: Run, stream: PromptStream | None = None, parent: "BaseState | None" = None) -> None:
        super().__init__(run, parent)
        self._parent_root: BaseState | None = parent._root if parent else None  # None, not itself: no cycle to collect
        self._forks: weakref.WeakSet[BaseState] = weakref.WeakSet()  # of a root: all that came from it
        self._stream = stream or PromptStream(run)
        self._grows: set[str] = set()  # variables of its own calls, which are read as they grow
        self._place: PromptPlace = parent._place if parent else PromptPlace()  # where it ends
        self._has_turns = False  # among what was appended since the fork
        self._scopes: dict[str, Result] = {}
        self._found_error: BaseException | None = None  # see `error`
        self.ret_value: Any = None  # of the program's function

    @property
    def _root(self) -> "BaseState":
        """The state that the function was given."""
        return self._parent_root or self

    # -- appending --------------------------------------------------------------------------------------------------

    def __iadd__(self, value: Any) -> Self:
        self.extend(value)
        return self

    def extend(self, value: Any) -> None:
        """Append a text, a node, or several of them put together with +. It returns at once.

        Raises TypeError for what cannot be appended, Unsupported for what the backend cannot do, and ProgramError for
        turns that do not fit; all of it at this line, before anything of `value` is sent.
        """
        leaves = list(ir.leaves_of(ir.as_expr(value)))
        place = self._place
        for leaf in leaves:
            place = after(leaf, place, self.run, self._scopes)
        for leaf in leaves:
            self._append(leaf)
        self._place = place

    def _append(self, leaf: ir.Expr) -> None:
        """What was checked."""
        self._has_turns = self._has_turns or isinstance(leaf, ir.Begin | ir.End)
        match leaf:
            case ir.ConstantText(text):
                self._stream.append(text)
            case ir.Gen():
                name, result = self._declare(leaf.name)
                self._grows.add(name)
                thought = None if leaf.thoughts is None else self._declare(name + THOUGHT)[1]
                self._stream.gen(leaf, result, thought)
            case ir.Select():
                name, result = self._declare(leaf.name)
                self._grows.add(name)
                self._stream.select(leaf, result)
            case ir.Begin(role):
                self._stream.append(TurnBegin(role))
            case ir.End(role):
                self._stream.append(TurnEnd(role))
            case ir.Variable(name, result):
                self._stream.append_value(name, result)
            case ir.Media(kind, source):
                self._stream.append(MediaPiece(kind, source, leaf.options))
            case ir.ScopeBegin(name):
                self._scopes[name] = Result()
                self._stream.begin_scope(self._scopes[name])
            case ir.ScopeEnd(name):
                self._stream.end_scope(self._scopes.pop(name), self._declare(name)[1])

    def run_elsewhere(self) -> None:
        """The function will run on another thread than those that ask for variables before it comes to them."""
        self.run.body.thread = ELSEWHERE

    def run_here(self) -> None:
        """The function runs on this thread."""
        self.run.body.thread = threading.get_ident()

    # -- turns and scopes -------------------------------------------------------------------------------------------

    def system(self, expr: Any = None) -> Any:
        """Append a turn, or without an argument begin one for a `with` block: with s.system(): s += ..."""
        return self._turn("system", expr)

    def user(self, expr: Any = None) -> Any:
        return self._turn("user", expr)

    def assistant(self, expr: Any = None) -> Any:
        return self._turn("assistant", expr)

    def tool(self, expr: Any = None) -> Any:
        return self._turn("tool", expr)

    def _turn(self, role: str, expr: Any) -> Any:
        if expr is None:
            return self._with_turn(role)
        self.extend(getattr(api, role)(expr))
        return ir.Appended(role)

    @contextmanager
    def _with_turn(self, role: str) -> Iterator[Self]:
        self.extend(ir.Begin(role, ir.caller()))
        with self._ended_by(ir.End(role, ir.caller())):
            yield self

    @contextmanager
    def var_scope(self, name: str) -> Iterator[Self]:
        """s[name] becomes the text that the block appends."""
        self.extend(ir.ScopeBegin(name))
        with self._ended_by(ir.ScopeEnd(name)):
            yield self

    @contextmanager
    def _ended_by(self, end: ir.Expr) -> Iterator[None]:
        """What a block raises is raised, also where its end no longer fits."""
        try:
            yield
        except BaseException:
            with suppress(ProgramError):
                self.extend(end)
            raise
        self.extend(end)

    # -- forks ------------------------------------------------------------------------------------------------------

    def fork(self, size: int = 1, position_ids_offset: None = None) -> "StateGroup[Self]":
        """`size` states that go on from here, beside each other. It returns at once."""
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"size is {size!r}, must be an integer >= 1")
        if position_ids_offset is not None:
            raise ValueError("position_ids_offset is given, but positions are the join's: join('concate_and_append')")
        where = ir.caller()
        streams = [self._new_stream() for _ in range(size)]
        children = [type(self)(self.run, stream, self) for stream in streams]
        with self._root._declared:
            self._root._forks.update(children)
        self._stream.fork(streams, where)
        return StateGroup(self, children)

    def _new_stream(self) -> PromptStream:
        """Of a fork."""
        return PromptStream(self.run, begun=False)

    @contextmanager
    def copy(self, position_ids_offset: None = None) -> Iterator[Self]:
        """A state that goes on from here; its variables are joined at the block's end."""
        group = self.fork(1, position_ids_offset)
        yield group[0]
        self.take_copied(group[0])

    def append_forks(self, children: Sequence["BaseState"], where: ir.Where) -> None:
        for child in children:
            if child._place.role != self._place.role:
                mine, theirs = self._place.role or "nobody", child._place.role or "nobody"
                raise ProgramError(
                    f"concate_and_append: a fork is in a turn of {theirs}, not in one of {mine} as before"
                )
            if child._has_turns:
                raise ProgramError("concate_and_append: a fork has turns of its own, and their content is appended")
        role = self._place.role
        self._place = self._place._replace(turn_has_text=role != "", text_outside=self._place.text_outside or not role)
        self._stream.join([child._stream for child in children], [child._stream.end() for child in children], where)

    async def _rendered(self, prompt: Prompt) -> str:
        backend = self.run.backend
        if backend.capabilities.renders and (prompt.has_turns or prompt.has_media):
            return await backend.render(prompt)
        return prompt.shown()

    async def _elsewhere(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Wait on any event loop for what runs on the backend's."""
        return await asyncio.wrap_future(self.run.backend.loop.start(coroutine))

    def _error(self) -> BaseException | None:
        """A failed call of a fork counts where nobody was told of it yet."""
        if self._found_error is None:
            failures = self.run.failures if self._body is not None else []
            untold = (error for error in failures if not error.seen.yes)
            raised = self._body.error if self._body is not None else None
            self._found_error = raised or self._stream.error or next(untold, None)
        if isinstance(self._found_error, CallFailed):
            self._found_error.see()
        return self._found_error

    def _ends(self) -> Iterator[Result]:
        """To be waited for one after the other: what was appended to a fork, or in the whole run, is done then."""
        yield self._stream.end()
        if self._body is not None:
            yield from self.run.ends()  # by now forks have begun

    async def _settle(self) -> None:
        for end in self._ends():
            await end.settled()

    def _check_wait(self) -> None:
        check_wait(self.run.backend.loop)

    @property
    def saved(self) -> SavedCalls | None:
        """What API speculation saved for the run; None: it was not asked for."""
        return self.run.saved if self.run.settings.spec_tokens else None

    def cancel(self) -> None:
        """End the calls of the whole run; whoever waits for their values gets Cancelled."""
        self.run.cancel()

    def close(self, error: BaseException | None = None) -> None:
        """Nothing more is appended. `error`: for whoever reads its text as it grows."""
        if error is not None and self._stream.feed is not None:
            self._stream.feed.end(error)
        self._stream.close()

    def when_first_called(self, came: Callable[[], None]) -> None:
        """See Stream."""
        self._stream.when_first_called(came)

    def finish(self, error: BaseException | None = None) -> None:
        """The program's function has returned, or raised; whoever reads its text comes to its end."""
        body = self.run.body
        self.run.end_body()
        with self._declared:
            forks = list(self._forks)
        for state in (self, *forks):
            state.close(error)
        with self._declared:
            body.error, body.thread = error, None
            self._declared.notify_all()
        body.finished.set(None)


class StateGroup(Generic[S], NotCopied):
    """Forks of one state, in order: group[i], `group += ...` for all of them, `group.join()`."""

    only_one = "its states are runs of a program; fork once more"

    def __init__(self, parent: S, states: list[S]) -> None:
        self._parent, self._states, self._joined = parent, states, False

    def __iadd__(self, value: Any) -> Self:
        """One thing for all of them, a list with one for each, or a function of the index that gives it."""
        if isinstance(value, list | tuple) and len(value) != len(self._states):
            raise ValueError(
                f"{len(value)} values are appended to {len(self._states)} forks; give one, or one for each"
            )
        for i, state in enumerate(self._states):
            state += value[i] if isinstance(value, list | tuple) else value(i) if callable(value) else value
        return self

    def join(self, mode: str = "gather_variable") -> None:
        """Bring what the forks made to the state they come from. It returns at once.

        gather_variable: each of their new variables becomes a list there, in their order; a further join of forks with
        the same names makes the lists longer. concate_and_append: their texts are appended as well; where the backend
        computes parallel contexts, none of them attends to another (section 6.2.5 of the SGLang paper), which gives
        other outputs than the same text read in sequence. Forks are joined once: ProgramError.
        """
        parent, states = self._parent, self._states
        if mode not in ("gather_variable", "concate_and_append"):
            raise ValueError(f"mode is {mode!r}, must be 'gather_variable' or 'concate_and_append'")
        if self._joined:
            raise ProgramError("these forks are joined already")
        if mode == "concate_and_append":
            parent.append_forks(states, ir.caller())
        parent.gather(states)
        self._joined = True
        for state in states:
            state.close()

    def __getitem__(self, index: int) -> S:
        return self._states[index]

    def __setitem__(self, index: int, state: S) -> None:
        """What `group[i] += ...` ends with. Raises TypeError for another state."""
        if state is not self._states[index]:
            raise TypeError("a fork may be appended to, not replaced")

    def __iter__(self) -> Iterator[S]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)
