"""The variables of one state: values that are there or still to come, by their names."""

import threading
from collections.abc import Iterable, Sequence
from typing import Any

from ramet.frontend.ir import Variable
from ramet.frontend.loop import check_wait
from ramet.frontend.results import Gathered, Result
from ramet.frontend.run import Run
from ramet.ipc.waits import slice_s

THOUGHT = "_reasoning_content"  # behind a variable's name: its thought


class Variables(dict[str, Result]):
    """By name. Calls without a name are counted: gen_0, gen_1."""

    def __init__(self, others: "Variables | None" = None) -> None:
        super().__init__(others or {})
        self.num_unnamed: int = others.num_unnamed if others else 0

    def free_name(self) -> str:
        self.num_unnamed += 1
        while self.last_unnamed in self:
            self.num_unnamed += 1
        return self.last_unnamed

    @property
    def last_unnamed(self) -> str:
        return f"gen_{self.num_unnamed - 1}"


class StateVariables:
    """What a state has by names. One thread sets variables, and any thread may wait for them."""

    def __init__(self, run: Run, parent: "StateVariables | None") -> None:
        """`parent`: the state that a fork comes from, with whose variables it begins."""
        self.run = run
        self._body = run.body if parent is None else None  # None: no function runs for a fork alone
        self._variables: Variables = Variables(parent._variables if parent else None)
        self._new: dict[str, Result] = {}  # variables that came after the fork, for a join
        self._watched: dict[str, list[Result | None]] = {}
        self._declared = threading.Condition()

    def _runs_elsewhere(self) -> bool:
        return self._body is not None and self._body.runs_elsewhere

    def _declare(self, name: str | None) -> tuple[str, Result]:
        """A variable that is still to come, by its name."""
        result = Result()
        with self._declared:
            name = self._variables.free_name() if name is None else name
            self.put(name, result)
        return name, result

    def put(self, name: str, result: Result) -> None:
        """Whoever waits for a variable of that name looks for it now."""
        with self._declared:
            self._variables[name] = self._new[name] = result
            if name in self._watched:
                self._watched[name].append(result)
            self._declared.notify_all()

    def watch(self, names: Iterable[str]) -> dict[str, list[Result | None]]:
        """All values that these variables come to have, in order; first the one of now, or None."""
        self._watched = {name: [self._variables.get(name)] for name in names}
        return self._watched

    def take_copied(self, child: "StateVariables") -> None:
        self._variables.num_unnamed = max(self._variables.num_unnamed, child._variables.num_unnamed)
        for name, result in child._new.items():
            self.put(name, result)

    def gather(self, children: Sequence["StateVariables"]) -> None:
        """Each variable that is new in children becomes a list; a list that an earlier join made grows."""
        names = dict.fromkeys(name for child in children for name in child._new)
        for name in names:
            found = [child._new[name] for child in children if name in child._new]
            before = self._variables.get(name)
            self.put(name, Gathered(found, before if isinstance(before, Gathered) else None))
        numbers = (child._variables.num_unnamed for child in children)
        self._variables.num_unnamed = max(self._variables.num_unnamed, *numbers)

    def set_var(self, name: str, value: Any) -> None:
        """s[name] = value. A value that is still to come is that variable's, by another name."""
        match value:
            case Variable(_, result):
                self.put(name, result)
            case _:
                self.put(name, Result.of(value))

    def __setitem__(self, name: str, value: Any) -> None:
        self.set_var(name, value)

    def __contains__(self, name: object) -> bool:
        """Whether there is such a variable, known already or still to come."""
        return name in self._variables

    def result(self, name: str) -> Result:
        """A variable, known or still to come; waits until a function that runs elsewhere has come to it."""
        with self._declared:
            while name not in self._variables and self._runs_elsewhere():
                check_wait(self.run.backend.loop)
                self._declared.wait(slice_s())
        if name not in self._variables:
            if self._body is not None and self._body.error is not None:
                raise self._body.error
            known = ", ".join(list(self._variables)) or "none"
            raise KeyError(f"{name!r} is not a variable of this state: there are {known}")
        return self._variables[name]
