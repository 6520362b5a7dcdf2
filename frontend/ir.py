"""The nodes of a program: what `+=` appends to a prompt, and how expressions are put together with `+`.

Decides the words of the language (section 4.1 of the SGLang paper) and knows no backend and no thread. Nodes are
immutable: one may be appended to many prompts, from many threads.
"""

import contextlib
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

HERE = str(Path(__file__).parent)
BETWEEN = (HERE, contextlib.__file__)  # blocks, such as s.user(), are entered by the latter
ROLES: tuple[str, ...] = ("system", "user", "assistant", "tool")
SELECT_OPTIONS = ("priority", "cache_salt", "extra_key", "token_healing", "sampling_seed")  # fields of its request


class Where(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


def caller() -> Where:
    """The innermost line that is not one of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(BETWEEN):
        frame = frame.f_back
    return Where(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


class Expr:
    """Anything that may be appended. `a + b` appends one after the other, and either may be a text."""

    __slots__ = ()

    def __add__(self, other: Any) -> "Expr":
        return joined(self, other)

    def __radd__(self, other: Any) -> "Expr":
        return joined(other, self)

    def __format__(self, spec: str) -> str:
        raise TypeError(f"{type(self).__name__} cannot stand inside an f-string: put texts and calls together with +")

    def __str__(self) -> str:
        raise TypeError(f"{type(self).__name__} is not a text yet: put texts and calls together with +")

    def leaves(self) -> Iterator["Expr"]:
        """Its nodes in order."""
        yield self


class Printed:
    """A value of an output that is no text, and is appended as it prints: a number of gen(dtype=int)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Appended(Expr):
    """What s.user(...) gives, which has appended its turn: `s += s.user(...)` appends nothing more."""

    role: str

    def leaves(self) -> Iterator[Expr]:
        return iter(())


def joined(first: Any, second: Any) -> "Expr":
    """One after the other. Raises TypeError for what is neither a text nor a node, or would not be in this order."""
    if isinstance(second, Appended) and not isinstance(first, Appended):
        role = second.role
        raise TypeError(f"s.{role}(...) has appended its turn already, before what it is put behind: use {role}(...)")
    return Concat(tuple(leaf for part in (first, second) for leaf in leaves_of(as_expr(part))))


def leaves_of(expr: "Expr") -> Iterator["Expr"]:
    """Its nodes in order."""
    return iter((expr,)) if isinstance(expr, Variable) else expr.leaves()


def check_known(arguments: Mapping[str, Any]) -> None:
    """Raises TypeError, or ProgramError inside a trace, for one that is still to come, or is a list with such a one."""
    for name, value in arguments.items():
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, Variable):
                each._refuse_as(name)


def as_expr(value: Any) -> Expr:
    """Raises TypeError for what cannot be appended."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, str | Printed):
        return ConstantText(str(value))
    raise TypeError(
        f"{type(value).__name__} cannot be appended to a prompt: it takes texts, gen(), select() and the like"
    )


@dataclass(frozen=True, slots=True)
class Concat(Expr):
    parts: tuple[Expr, ...]  # none of them is a Concat

    def leaves(self) -> Iterator[Expr]:
        return iter(self.parts)


@dataclass(frozen=True, slots=True)
class ConstantText(Expr):
    """`movable`: a compiled program may put it before arguments that stand before it (passes.py)."""

    text: str
    movable: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """What an output keeps to. `kind`: regex, json_schema, ebnf or structural_tag; `value`: its text or object."""

    kind: str
    value: Any


@dataclass(frozen=True, slots=True)
class Gen(Expr):
    """A call of the model (`gen`). Its text is appended, and what `read` makes of it is the variable's value."""

    name: str | None
    where: Where
    sampling: Mapping[str, Any]  # those of ipc/params.py that were given
    options: Mapping[str, Any]  # other fields of /generate that were given: return_logprob and the like
    held: Held | None = None
    read: Callable[[str], Any] | None = None  # None: the text itself
    kind: type | None = None  # int, float, bool or str, where `dtype` asked for it
    thoughts: str | None = None  # they are separated; the name of their parser, "" for the backend's own; None: not


@dataclass(frozen=True, slots=True)
class Select(Expr):
    """The choice that the model finds most probable (`select`), which is appended."""

    name: str | None
    where: Where
    choices: tuple[str, ...]
    method: Any  # a name of choices.METHODS, or a ChoicesSamplingMethod
    temperature: float = 0.0
    options: Mapping[str, Any] = None  # type: ignore[assignment]  # set by select(), which checks them


@dataclass(frozen=True, slots=True, eq=False)
class Variable(Expr):
    """The value of another state's call, which is appended when it is there. In async programs `await` gives it.

    Whatever would take it for the value itself raises TypeError. It has no attributes of its own: those that a program
    asks for are the value's.
    """

    _name: str
    _result: Any  # results.Result

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._unknown()

    @property
    def leaves(self) -> Any:  # see leaves_of
        return self.__getattr__("leaves")

    def __format__(self, spec: str) -> str:
        raise self._unknown()

    def __str__(self) -> str:
        raise self._unknown()

    def __bool__(self) -> bool:
        raise self._unknown()

    def __eq__(self, other: object) -> bool:
        raise self._unknown()

    __hash__ = Expr.__hash__  # for asyncio.gather, which knows its awaitables by themselves

    def _unknown(self) -> TypeError:
        return TypeError(f"{self._name!r} is still to come: await it")

    def _refuse_as(self, argument: str) -> NoReturn:
        """It is given to a call of the model, which is made of what is known."""
        raise TypeError(f"{argument} is {self._name!r}, which is still to come: await it")

    def __await__(self) -> Generator[Any, None, Any]:
        waiting: Generator[Any, None, Any] = self._result.wait().__await__()
        return waiting


@dataclass(frozen=True, slots=True)
class Begin(Expr):
    """A turn of a chat begins."""

    role: str
    where: Where


@dataclass(frozen=True, slots=True)
class End(Expr):
    """The turn ends."""

    role: str
    where: Where


@dataclass(frozen=True, slots=True)
class Media(Expr):
    """A picture, a film or a sound. `source`: of media.py; in a graph also a node of nodes.py, made of arguments."""

    kind: Literal["image", "video", "audio"]
    source: Any
    where: Where
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScopeBegin(Expr):
    name: str


@dataclass(frozen=True, slots=True)
class ScopeEnd(Expr):
    name: str
