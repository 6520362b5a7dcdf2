"""Values that only a run knows, as a function that is traced holds them: alone, or inside the text of an f-string.

Decides what may be done with one: to append, format, store, pass or return it. What looks at it is refused, with the
line of the program.
"""

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from ramet.frontend.errors import ProgramError
from ramet.frontend.graph import Argument, Formatted, Unknown
from ramet.frontend.ir import ConstantText, Expr, Variable, caller

# An unknown value inside an f-string. No text has U+FDD0 and U+FDD1, which are no characters; and what changes a text
# (upper, replace, split, a slice) is likely to break the words between them, which is noticed.
MARK = "\ufdd0a vAlue {} tO come\ufdd1"
MARKS = re.compile("(" + MARK.format(r"\d+") + ")")
HALF = re.compile(r"[\ufdd0\ufdd1]|\\ufdd[01]")  # the latter: as repr and JSON write them
WHAT_MAY_BE = "it may be appended, formatted, stored, returned, or given to a program"


@dataclass(frozen=True, slots=True, eq=False)
class Placeholder(Variable):
    """An argument, or a call's value, as the function that is traced gets it. `result` is its node."""

    marks: "Marks"

    def looked_at(self, *_: Any, **__: Any) -> NoReturn:
        raise ProgramError(
            f"{_words(self.result)} is known only when the program runs, and {caller()} looks at it: "
            + (f"trace({self.name}=...) makes it known" if isinstance(self.result, Argument) else WHAT_MAY_BE)
        )

    __bool__ = __len__ = __iter__ = __contains__ = __getitem__ = __int__ = __float__ = __index__ = looked_at
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __sub__ = __mul__ = __rmul__ = __mod__ = __hash__ = looked_at
    __call__ = __enter__ = __exit__ = __neg__ = __truediv__ = looked_at

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.looked_at()

    def __format__(self, spec: str) -> str:
        return self.marks.mark(Formatted(self.result, "", spec))

    def __str__(self) -> str:
        return self.marks.mark(Formatted(self.result))

    def __repr__(self) -> str:
        return self.marks.mark(Formatted(self.result, "r"))

    def __await__(self) -> Generator[Any, None, "Placeholder"]:
        yield from ()
        return self


class Marks:
    """The unknown values that stand in the texts of one trace."""

    def __init__(self) -> None:
        self._marked: list[Formatted] = []

    def placeholder(self, value: Unknown | Formatted) -> Placeholder:
        unknown = value.value if isinstance(value, Formatted) else value
        return Placeholder(unknown.name, value, self)

    def mark(self, value: Formatted) -> str:
        self._marked.append(value)
        return MARK.format(len(self._marked) - 1)

    def parts(self, text: str) -> list[Expr]:
        """The constants and unknown values of a text. Raises ProgramError where a mark was changed."""
        parts: list[Expr] = []
        for i, part in enumerate(MARKS.split(text)):
            if i % 2:
                parts.append(self._marked[int(re.sub(r"\D", "", part))])
            elif HALF.search(part):
                raise ProgramError(f"{caller()} changes a text that has a value in it which only a run knows")
            elif part:
                parts.append(ConstantText(part))
        return parts


def has_unknown(value: Any) -> bool:
    """Whether a value is one that only a run knows, or has one in it."""
    if isinstance(value, Placeholder):
        return True
    if isinstance(value, Mapping):
        return any(map(has_unknown, [*value.keys(), *value.values()]))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(has_unknown, value))
    return isinstance(value, str) and HALF.search(value) is not None


def _words(value: Unknown) -> str:
    return f"the argument {value.name!r}" if isinstance(value, Argument) else f"the value of {value.name!r}"
