"""The features of rows that keep nothing of their own: what they do for a row is in its columns and its request."""

from ramet.runtime.scheduler.feature import RowFeature
from ramet.runtime.scheduler.features.constrained import JumpingRows
from ramet.runtime.scheduler.features.long_rope import LimitedRows
from ramet.runtime.scheduler.features.media import TurnedRows
from ramet.runtime.scheduler.features.min_new_tokens import LongOutputs
from ramet.runtime.scheduler.features.position_offsets import ShiftedRows
from ramet.runtime.scheduler.features.processors import ProcessorMemory
from ramet.runtime.scheduler.features.returned import ReturnedRows

OF_ROWS: tuple[RowFeature, ...] = (
    ProcessorMemory(), LimitedRows(), TurnedRows(), ShiftedRows(), ReturnedRows(), LongOutputs(), JumpingRows()
)  # fmt: skip
