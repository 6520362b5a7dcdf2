"""What may be done with the state of a prompt without waiting: `s += ...`, `s.fork(3)`, `with s.user():`.

Decides what may be appended where, and refuses it at the user's line; what takes time is submitted to the state's
stream. One state is appended to by one thread at a time; forks may go to others. state.py adds what waits for values.
"""

import asyncio
import threading
import weakref
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

from ramet.frontend import api
from ramet.frontend.backends.base import Place
from ramet.frontend.errors import ProgramError
from ramet.frontend.executor import Stream
from ramet.frontend.forks import StateGroup
from ramet.frontend.ir import (
    Begin,
    ConstantText,
    End,
    Expr,
    Gen,
    Media,
    ScopeBegin,
    ScopeEnd,
    Select,
    Variable,
    Where,
    as_expr,
    caller,
)
from ramet.frontend.prompt import MediaPiece, Prompt, TurnBegin, TurnEnd
from ramet.frontend.results import Gathered, Result
from ramet.frontend.run import Run
from ramet.frontend.speculation import Saved, may_speculate

ELSEWHERE = -1  # some other thread
THOUGHT = "_reasoning_content"  # behind a variable's name: its thought


class Words:
    """The nodes as methods: s.gen(...) is gen(...), as the paper's Figures 1 and 4 write it."""

    gen = staticmethod(api.gen)
    gen_int = staticmethod(api.gen_int)
    gen_string = staticmethod(api.gen_string)
    select = staticmethod(api.select)
    image = staticmethod(api.image)
    video = staticmethod(api.video)
    separate_reasoning = staticmethod(api.separate_reasoning)


class Variables(dict[str, Result]):
    """By name. Calls without a name are counted: gen_0, gen_1."""

    def __init__(self, others: "Variables | None" = None) -> None:
        super().__init__(others or {})
        self.num_unnamed: int = others.num_unnamed if others else 0

    def new(self, name: str | None) -> Result:
        if name is None:
            name, self.num_unnamed = f"gen_{self.num_unnamed}", self.num_unnamed + 1
        result = self[name] = Result()
        return result


class BaseState(Words):
    """What states of plain and of async programs share: all that returns at once."""

    def __init__(self, run: Run, stream: Stream | None = None, parent: "BaseState | None" = None) -> None:
        self.run = run
        self._parent_root: BaseState | None = parent._root if parent else None  # None, not itself: no cycle to collect
        self._forks: weakref.WeakSet[BaseState] = weakref.WeakSet()  # of a root: all that came from it
        self._stream = stream or Stream(run)
        self._variables: Variables = Variables(parent._variables if parent else None)
        self._new: dict[str, Result] = {}  # variables that came after the fork, for a join
        self._role: str = parent._role if parent else ""
        self._has_turns: bool = parent._has_turns if parent else False
        self._turn_has_text: bool = parent._turn_has_text if parent else False
        self._text_outside: bool = parent._text_outside if parent else False  # of every turn
        self._scopes: dict[str, Result] = {}
        self._declared = threading.Condition()
        self._body: int | None = None  # the thread that runs the function; None: it does not, or nobody else asks
        self._body_error: BaseException | None = None  # what it raised
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
        leaves = list(as_expr(value).leaves())
        for leaf in leaves:
            if isinstance(leaf, Media):
                self.run.backend.check_media(leaf)
        for leaf in leaves:
            self._append(leaf)

    def _append(self, leaf: Expr) -> None:
        match leaf:
            case ConstantText(text):
                self._turn_has_text = self._turn_has_text or text != ""
                self._text_outside = self._text_outside or (not self._role and text.strip() != "")
                self._stream.append(text)
            case Gen():
                self._append_gen(leaf)
            case Select():
                self.run.backend.check_select(leaf, self._place)
                self._stream.select(leaf, self._declare(leaf.name))
                self._turn_has_text = True
            case Begin():
                self._begin(leaf)
            case End():
                self._end(leaf)
            case Variable(name, result):
                self._stream.append_value(name, result)
                self._turn_has_text = True
            case Media(kind, source):
                self._stream.append(MediaPiece(kind, source))
            case ScopeBegin(name):
                self._scopes[name] = Result()
                self._stream.begin_scope(self._scopes[name])
            case ScopeEnd(name):
                self._stream.end_scope(self._scopes.pop(name), self._declare(name))
            case _:
                raise TypeError(f"{type(leaf).__name__} cannot be appended")

    def _append_gen(self, node: Gen) -> None:
        settings, backend = self.run.settings, self.run.backend
        place, sampling = self._place, {**settings.sampling, **node.sampling}
        asked = replace(node, options={**settings.options, **node.options})
        if settings.spec_tokens and may_speculate(asked, sampling):  # a whole turn is asked for
            place = place._replace(turn_has_text=False)
        backend.check_gen(asked, sampling, place)
        result = self._declare(node.name)
        thought = None
        if node.thoughts is not None and node.name is not None:
            thought = self._declare(node.name + THOUGHT)
        self._stream.gen(node, result, thought)
        self._turn_has_text = True

    @property
    def _place(self) -> Place:
        in_turn_with_text = self._role != "" and self._turn_has_text
        return Place(self._role, self._has_turns, in_turn_with_text, self._text_outside)

    def _declare(self, name: str | None) -> Result:
        with self._declared:
            result = self._variables.new(name)
            if name is not None:
                self._new[name] = result
            self._declared.notify_all()
        return result

    def run_elsewhere(self) -> None:
        """The function will run on another thread than those that ask for variables before it comes to them."""
        self._body = ELSEWHERE

    def run_here(self) -> None:
        """The function runs on this thread."""
        self._body = threading.get_ident()

    def _begin(self, turn: Begin) -> None:
        if self._role:
            raise ProgramError(f"{turn.role}: the turn of {self._role} has not ended, and turns do not nest")
        self.run.backend.check_turn(turn)
        self._role, self._has_turns, self._turn_has_text = turn.role, True, False
        self._stream.append(TurnBegin(turn.role))

    def _end(self, turn: End) -> None:
        if self._role != turn.role:
            now = f"the turn is of {self._role}" if self._role else "no turn has begun"
            raise ProgramError(f"{turn.role}_end: {now}")
        self._role, self._turn_has_text = "", False
        self._stream.append(TurnEnd(turn.role))

    # -- turns and scopes -------------------------------------------------------------------------------------------

    def system(self, expr: Any = None) -> Any:
        """A turn as an expression, or without an argument for a `with` block: with s.system(): s += ..."""
        return self._turn("system", expr)

    def user(self, expr: Any = None) -> Any:
        return self._turn("user", expr)

    def assistant(self, expr: Any = None) -> Any:
        return self._turn("assistant", expr)

    def tool(self, expr: Any = None) -> Any:
        return self._turn("tool", expr)

    def _turn(self, role: str, expr: Any) -> Any:
        return self._with_turn(role) if expr is None else getattr(api, role)(expr)

    @contextmanager
    def _with_turn(self, role: str) -> Iterator[Self]:
        self.extend(Begin(role, caller()))
        try:
            yield self
        finally:
            self.extend(End(role, caller()))

    @contextmanager
    def var_scope(self, name: str) -> Iterator[Self]:
        """s[name] becomes the text that the block appends."""
        self.extend(ScopeBegin(name))
        try:
            yield self
        finally:
            self.extend(ScopeEnd(name))

    # -- forks ------------------------------------------------------------------------------------------------------

    def fork(self, size: int = 1, position_ids_offset: None = None) -> "StateGroup[Self]":
        """`size` states that go on from here, beside each other. It returns at once."""
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"size is {size!r}, must be an integer >= 1")
        if position_ids_offset is not None:
            raise ValueError("position_ids_offset is given, but positions are the join's: join('concate_and_append')")
        where = caller()
        streams = [Stream(self.run, begun=False) for _ in range(size)]
        children = [type(self)(self.run, stream, self) for stream in streams]
        self._root._forks.update(children)
        self._stream.fork(streams, where)
        return StateGroup(self, children)

    @contextmanager
    def copy(self, position_ids_offset: None = None) -> Iterator[Self]:
        """A state that goes on from here; its variables are joined at the block's end."""
        group = self.fork(1, position_ids_offset)
        yield group[0]
        self._take_copied(group[0])

    def _take_copied(self, child: "BaseState") -> None:
        for name, result in child._new.items():
            self._variables[name] = self._new[name] = result

    def gather(self, children: Sequence["BaseState"]) -> None:
        """Each variable that is new in children becomes a list; a list that an earlier join made grows."""
        names = dict.fromkeys(name for child in children for name in child._new)
        for name in names:
            found = [child._new[name] for child in children if name in child._new]
            before = self._variables.get(name)
            if isinstance(before, Gathered):
                found = [*before.each, *found]
            self._variables[name] = self._new[name] = Gathered(found)

    def append_forks(self, children: Sequence["BaseState"], where: Where) -> None:
        for child in children:
            if child._role != self._role:
                mine, theirs = self._role or "nobody", child._role or "nobody"
                raise ProgramError(
                    f"concate_and_append: a fork is in a turn of {theirs}, not in one of {mine} as before"
                )
        self._turn_has_text = True
        self._stream.join([child._stream for child in children], [child._stream.end() for child in children], where)

    # -- variables that need no wait ----------------------------------------------------------------------------------

    def set_var(self, name: str, value: Any) -> None:
        """s[name] = value."""
        self._variables[name] = self._new[name] = Result.of(value)

    def __setitem__(self, name: str, value: Any) -> None:
        self.set_var(name, value)

    def __contains__(self, name: object) -> bool:
        """Whether there is such a variable, known already or still to come."""
        return name in self._variables

    def _result(self, name: str) -> Result:
        with self._declared:
            while name not in self._variables and self._runs_elsewhere():
                self._check_wait()
                self._declared.wait()
        if name not in self._variables:
            if self._body_error is not None:
                raise self._body_error
            known = ", ".join(self._variables) or "none"
            raise KeyError(f"{name!r} is no variable of this state: there are {known}")
        return self._variables[name]

    async def _rendered(self, prompt: Prompt) -> str:
        backend = self.run.backend
        if prompt.has_turns and backend.capabilities.renders:
            return await backend.render(prompt)
        return prompt.text()

    async def _elsewhere(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Wait on any event loop for what runs on the backend's."""
        return await asyncio.wrap_future(self.run.backend.loop.start(coroutine))

    def _error(self) -> BaseException | None:
        if self._stream.error is not None:
            self._stream.error.see()
        return self._body_error or self._stream.error

    def _check_wait(self) -> None:
        if self.run.backend.loop.is_current():
            raise ProgramError("a plain program cannot wait on the event loop that its calls need; write an async def")

    def _runs_elsewhere(self) -> bool:
        return self._body is not None and self._body != threading.get_ident()

    @property
    def saved(self) -> Saved | None:
        """What API speculation saved for this state; None: it was not asked for."""
        return self._stream.saved

    def cancel(self) -> None:
        """End the calls of the whole run; whoever waits for their values gets Cancelled."""
        self.run.cancel()

    def end_feed(self, error: BaseException | None = None) -> None:
        if error is not None and self._stream.feed is not None:
            self._stream.feed.end(error)
        self._stream.close_feed()

    def finish(self, error: BaseException | None = None) -> None:
        """The program's function has returned, or raised; whoever reads its text comes to its end."""
        self.run.end_body()
        for state in (self, *self._forks):
            state.end_feed(error)
        with self._declared:
            self._body_error = error
            self._body = None
            self._declared.notify_all()
