"""An automaton over characters becomes one over the bytes of UTF-8: states between the bytes of a character are added.

A smallest automaton stays the smallest one: states that lead to the same by the same bytes are one state.
"""

from ramet.runtime.grammar.alphabet import Prefix
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.character_dfa import CharacterDfa

MAX_STATES = 200_000  # about 10 MB

State = int
Runs = tuple[tuple[int, int, State], ...]  # the first and the last byte, where they lead; ascending


def spell_out(dfa: CharacterDfa, lead: Prefix) -> list[Runs]:
    """The runs of each state, those of the dfa first. Raises GrammarError where there are too many."""
    spelling = _Spelling(len(dfa.steps))
    rows = [spelling.runs(lead, steps) for steps in dfa.steps]
    return [*rows, *spelling.between]


class _Spelling:
    def __init__(self, num_states: int) -> None:
        self._ids: dict[Runs, State] = {}  # of states between the bytes of a character
        self._known: dict[tuple[Prefix, tuple[State | None, ...]], Runs] = {}
        self._num_states = num_states

    @property
    def between(self) -> list[Runs]:
        return list(self._ids)

    def runs(self, prefix: Prefix, steps: dict[int, State]) -> Runs:
        """Of the state behind these bytes of a character, which then leads on by its class."""
        key = prefix, tuple(map(steps.get, prefix.classes))
        if key not in self._known:
            self._known[key] = self._make(prefix, steps)
        return self._known[key]

    def _make(self, prefix: Prefix, steps: dict[int, State]) -> Runs:
        runs: list[tuple[int, int, State]] = []
        for first, last, target in prefix.runs:
            reached = self._behind(target, steps) if isinstance(target, Prefix) else steps.get(target)
            if reached is None:
                continue
            if runs and runs[-1][1] + 1 == first and runs[-1][2] == reached:
                runs[-1] = runs[-1][0], last, reached
            else:
                runs.append((first, last, reached))
        return tuple(runs)

    def _behind(self, prefix: Prefix, steps: dict[int, State]) -> State | None:
        runs = self.runs(prefix, steps)
        if not runs:
            return None
        if runs not in self._ids:
            if len(self._ids) + self._num_states >= MAX_STATES:
                raise GrammarError(f"has more than {MAX_STATES} states over the bytes of its characters")
            self._ids[runs] = self._num_states + len(self._ids)
        return self._ids[runs]
