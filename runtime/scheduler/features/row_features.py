"""The features of rows that run, and which of them a row's bits ask for."""

from collections.abc import Sequence
from dataclasses import dataclass

from ramet.runtime.scheduler.feature import RowFeature
from ramet.runtime.scheduler.features.adapters import AdapterSlots
from ramet.runtime.scheduler.features.penalties import PenaltySlots
from ramet.runtime.scheduler.features.processors import ProcessorMemory
from ramet.runtime.scheduler.features.states import RowStates

PROCESSORS = ProcessorMemory()
ANY = PenaltySlots.flag | ProcessorMemory.flag


@dataclass(frozen=True, slots=True)
class RowFeatures:
    """`states`: of a model whose layers have them; None: keys and values are all that is kept of a row."""

    penalties: PenaltySlots
    adapters: AdapterSlots
    states: RowStates | None = None

    def of(self, flags: int) -> Sequence[RowFeature]:
        """The features that a row with the bits `flags` (RowFlag) has; it has some of ANY."""
        return [each for each in (self.penalties, PROCESSORS) if each.flag & flags]
