"""The features of rows that run, and which of them a row's bits ask for."""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from ramet.runtime.scheduler.feature import RowFeature
from ramet.runtime.scheduler.features.adapters import AdapterSlots
from ramet.runtime.scheduler.features.constrained import JumpingRows
from ramet.runtime.scheduler.features.long_rope import LimitedRows
from ramet.runtime.scheduler.features.media import TurnedRows
from ramet.runtime.scheduler.features.min_new_tokens import LongOutputs
from ramet.runtime.scheduler.features.penalties import PenaltySlots
from ramet.runtime.scheduler.features.position_offsets import ShiftedRows
from ramet.runtime.scheduler.features.processors import ProcessorMemory
from ramet.runtime.scheduler.features.returned import ReturnedRows
from ramet.runtime.scheduler.features.states import RowStates

OTHERS: tuple[RowFeature, ...] = (
    ProcessorMemory(), LimitedRows(), TurnedRows(), ShiftedRows(), ReturnedRows(), LongOutputs(), JumpingRows()
)  # fmt: skip
ANY = reduce(or_, (each.flag for each in OTHERS), PenaltySlots.flag | AdapterSlots.flag)


class RowFeatures:
    """`states`: of a model whose layers have them; None: keys and values are all that is kept of a row."""

    def __init__(self, penalties: PenaltySlots, adapters: AdapterSlots, states: RowStates | None = None) -> None:
        self.penalties, self.adapters, self.states = penalties, adapters, states
        self._all: list[RowFeature] = [penalties, adapters, *OTHERS]
        self._of: dict[int, Sequence[RowFeature]] = {}

    def of(self, flags: int) -> Sequence[RowFeature]:
        """The features that a row with the bits `flags` (RowFlag) has; it has some of ANY."""
        asked = flags & ANY
        if asked not in self._of:
            self._of[asked] = [each for each in self._all if each.flag & asked]
        return self._of[asked]
