"""Values that only a run knows, as a function that is traced holds them: alone, in a sum, or inside a text.

Decides what may be done with one: to append, format, store, pass or return it, and to add it to a text. What looks at
it is refused, with the line of the program; the first refusal ends the trace, also where the program catches it.
"""

import re
import sys
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from ramet.frontend.errors import ProgramError
from ramet.frontend.ir import ConstantText, Expr, Variable, caller, joined
from ramet.frontend.nodes import Argument, Formatted, Text, Unknown, unknowns

# An unknown value inside an f-string. No text has U+FDD0 and U+FDD1, which are no characters; and what changes a text
# (upper, replace, split, a slice) is likely to break the words between them, which is noticed.
MARK = "\ufdd0a vAlue {} tO come\ufdd1"
MARKS = re.compile("(" + MARK.format(r"\d+") + ")")
HALF = re.compile(r"[\ufdd0\ufdd1]|\\ufdd[01]")  # the latter: as repr and JSON write them
WHAT_MAY_BE = "it may be appended, formatted, stored, returned, or given to a program"

Come: TypeAlias = Unknown | Formatted | Text  # nodes of values


@dataclass(frozen=True, slots=True, eq=False)
class Placeholder(Variable):
    """An argument, a call's value, or a sum with one, as the function gets it. `_result` is its node, a `Come`."""

    _marks: "Marks"
    _is_number: bool = False  # of gen(dtype=int)

    def _looked_at(self, *_: Any, **__: Any) -> NoReturn:
        self._marks.refuse(f"{self._words()}, and {caller()} looks at it: {self._hint()}")

    __bool__ = __len__ = __iter__ = __contains__ = __getitem__ = __int__ = __float__ = __complex__ = __index__ = (
        _looked_at
    )
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = (
        _looked_at
    )
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = (
        _looked_at
    )
    __and__ = __rand__ = __or__ = __ror__ = __round__ = __reversed__ = __enter__ = __exit__ = _looked_at

    def __hash__(self) -> int:
        """asyncio.gather knows what it waits for by itself; of others it would be a look at the value."""
        if sys._getframe(1).f_globals.get("__name__", "").startswith("asyncio."):
            return id(self)
        self._looked_at()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._looked_at()

    def _refuse_as(self, argument: str) -> NoReturn:
        self._marks.refuse(f"{self._words()}, and {caller()} gives it as {argument}: {self._hint()}")

    def __add__(self, other: Any) -> Any:
        return self._marks.sum(self, other)

    def __radd__(self, other: Any) -> Any:
        return self._marks.sum(other, self)

    def __format__(self, spec: str) -> str:
        return self._marks.mark(Formatted(self._result, "", spec))

    def __str__(self) -> str:
        return MarkedText(self, "s")

    def __repr__(self) -> str:
        return MarkedText(self, "r")

    def __await__(self) -> Generator[Any, None, "Placeholder"]:
        yield from ()
        return self

    def _words(self) -> str:
        values = list(unknowns(self._result))
        first = next((value for value in values if isinstance(value, Argument)), values[0])
        name = f"the argument {first.name!r}" if isinstance(first, Argument) else f"the value of {first.name!r}"
        text = f"a text with {name} in it" if isinstance(self._result, Text) else name
        return f"{text} is known only when the program runs"

    def _hint(self) -> str:
        argument = next((value for value in unknowns(self._result) if isinstance(value, Argument)), None)
        return f"trace({argument.name}=...) makes it known" if argument is not None else WHAT_MAY_BE


class MarkedText(str):
    """What str() or repr() make of a placeholder. Its text is the mark; whatever looks at it is refused."""

    __slots__ = ("_conversion", "_of")

    def __new__(cls, of: Placeholder, conversion: str) -> "MarkedText":
        text = super().__new__(cls, of._marks.mark(Formatted(of._result, conversion)))
        text._of, text._conversion = of, conversion
        return text

    _of: Placeholder
    _conversion: str

    def _looked_at(self, *_: Any, **__: Any) -> NoReturn:
        self._of._looked_at()

    def __format__(self, spec: str) -> str:
        if not spec:
            return str.__str__(self)
        return self._of._marks.mark(Formatted(self._of._result, self._conversion, spec))


_LOOKS = (
    "eq", "ne", "lt", "le", "gt", "ge", "hash", "len", "iter", "contains", "getitem", "mod", "rmod", "mul", "rmul",
    "repr", "bool", "int", "float", "complex",
)  # fmt: skip
for _name in (*(f"__{name}__" for name in _LOOKS), *(name for name in dir(str) if not name.startswith("_"))):
    setattr(MarkedText, _name, MarkedText._looked_at)


@dataclass(frozen=True, slots=True, eq=False)
class PendingValue(Variable):
    """A variable of an async program, which may be appended, or awaited for `_value`. `_result` is its node."""

    _value: Any

    def __await__(self) -> Generator[Any, None, Any]:
        yield from ()
        return self._value


class Marks:
    """The unknown values that stand in the texts of one trace, and the first refusal of what was done with any."""

    def __init__(self) -> None:
        self._marked: list[Formatted] = []
        self._lock = threading.Lock()
        self.refusal: ProgramError | None = None

    def refuse(self, message: str) -> NoReturn:
        error = ProgramError(message)
        self.refusal = self.refusal or error
        raise error

    def placeholder(self, value: Come, is_number: bool = False) -> Placeholder:
        return Placeholder(next(unknowns(value)).name, value, self, is_number)

    def mark(self, value: Formatted) -> str:
        if self.stand_in(value.spec):
            self.refuse(f"{caller()} formats by a value that is known only when the program runs")
        with self._lock:
            self._marked.append(value)
            return MARK.format(len(self._marked) - 1)

    def stand_in(self, text: str) -> bool:
        """Whether a text has marks in it, whole or broken."""
        return bool(self._marked) and HALF.search(text) is not None

    def parts(self, text: str) -> list[Expr]:
        """The constants and unknown values of a text. Refuses one whose marks were changed."""
        if not self.stand_in(text):
            return [ConstantText(str(text))] if len(str(text)) else []
        parts: list[Expr] = []
        for i, part in enumerate(MARKS.split(text)):
            if i % 2:
                parts.append(self._marked[int(re.sub(r"\D", "", part))])
            elif HALF.search(part):
                self.refuse(f"{caller()} changes a text that has a value in it which only a run knows")
            elif part:
                parts.append(ConstantText(part))
        return parts

    def sum(self, left: Any, right: Any) -> Any:
        """left + right, of which one is a placeholder: a text, or what may be appended only."""
        ours, other = (left, right) if isinstance(left, Placeholder) else (right, left)
        if isinstance(other, Placeholder):
            if not isinstance(ours._result, Text) and not isinstance(other._result, Text):
                for each in (ours, other):
                    if each._is_number:
                        each._looked_at()
        elif isinstance(other, Expr):
            return joined(left, right)
        elif not isinstance(other, str):
            ours._looked_at()
        return self.placeholder(Text((*self._added(left), *self._added(right))))

    def _added(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, Placeholder):
            node = value._result
            return node.parts if isinstance(node, Text) else (node,)
        return tuple(self.parts(value))

    def has_unknown(self, value: Any) -> bool:
        """Whether a value is one that only a run knows, or has one in it: in a list, in a text, as an attribute."""
        if isinstance(value, Variable):
            return True
        if isinstance(value, str):
            return self.stand_in(value)
        if isinstance(value, Mapping):
            return any(map(self.has_unknown, [*value.keys(), *value.values()]))
        if isinstance(value, list | tuple | set | frozenset):
            return any(map(self.has_unknown, value))
        return any(isinstance(each, Variable) or self._is_marked(each) for each in _attributes(value))

    def _is_marked(self, value: Any) -> bool:
        if isinstance(value, list | tuple | set | frozenset | dict):
            return self.has_unknown(value)
        return isinstance(value, str) and self.stand_in(value)


def _attributes(value: Any) -> list[Any]:
    """Of a dataclass, a struct and the like."""
    kind = type(value)
    names = [*getattr(kind, "__slots__", ()), *getattr(kind, "__struct_fields__", ())]
    return [*getattr(value, "__dict__", {}).values(), *(getattr(value, name, None) for name in names)]
