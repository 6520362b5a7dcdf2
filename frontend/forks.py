"""Forks of one state: appended to together, and brought back to it by a join."""

from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

from ramet.frontend.errors import ProgramError
from ramet.frontend.ir import Where, caller
from ramet.ipc.owned import NotCopied


class Forked(Protocol):
    """What a group needs of its states, and of the one that they come from."""

    def __iadd__(self, value: Any) -> Self: ...

    def gather(self, children: Sequence[Any]) -> None: ...

    def append_forks(self, children: Sequence[Any], where: Where) -> None: ...

    def close(self) -> None: ...


S = TypeVar("S", bound=Forked)


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
            parent.append_forks(states, caller())
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
