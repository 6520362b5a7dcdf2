"""Penalties of tokens that a row has drawn before."""

from dataclasses import replace

import numpy as np

from ramet.runtime.sampling.columns import Penalties, SamplingColumns
from ramet.runtime.scheduler.drawing import DrawingRows


def add_rows(columns: SamplingColumns, draws: DrawingRows) -> SamplingColumns:
    table, slots = draws.table, draws.table.penalty_slots[draws.rows]
    at = np.flatnonzero(slots).astype(np.int32)
    own = draws.rows[at]
    penalties = Penalties(at, slots[at], table.frequency[own], table.presence[own], table.repetition[own])
    return replace(columns, penalties=penalties)
