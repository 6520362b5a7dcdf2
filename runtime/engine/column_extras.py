"""What some rows of a prepared step ask beyond their draw, in its columns: penalties, adapters, shifted positions.

Called only for a step in which a row asks for it; the columns of other steps have zeros there.
"""

from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.devices.step_inputs import Columns
from ramet.runtime.engine.extras import PositionOffsets, RowAdapters

COLUMN_OF = {PositionOffsets: "position_offsets", RowAdapters: "adapters"}  # inputs that decoding rows may bring


def fill_extras(columns: Columns, batch: Batch) -> None:
    """WRITES columns on the host, which are clear."""
    of, num = columns.of, len(batch.rows)
    if (penalties := batch.sampling.penalties) is not None:
        of["penalty_slots"][penalties.rows] = penalties.slots
        for name in ("frequency", "presence", "repetition"):
            of[name][penalties.rows] = getattr(penalties, name)
    for each in batch.inputs:
        assert isinstance(each, PositionOffsets | RowAdapters), "rows that decode bring nothing else"
        of[COLUMN_OF[type(each)]][:num] = each.values
