"""Batches built by hand: rows with chosen lengths over slots of one's own choice."""

import numpy as np

from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.extras import SlotUpdate
from ramet.runtime.sampling.columns import SamplingColumns


def make_batch(
    parts: list[tuple[int, int, int]],  # (row, first new position, end) of each row
    tokens: dict[int, np.ndarray],
    slots: dict[int, np.ndarray],
    draws: list[int] | None = None,
    slot_updates: tuple[SlotUpdate, ...] = (),
) -> Batch:
    """tokens[row][i] is at position i of a row and lives in slots[row][i]. Every row draws unless `draws` says less."""
    parts = [p for p in parts if p[2] - p[1] == 1] + [p for p in parts if p[2] - p[1] > 1]
    chosen = list(range(len(parts))) if draws is None else draws
    return Batch(
        rows=np.array([row for row, _, _ in parts], np.int32),
        num_new=np.array([end - start for _, start, end in parts], np.int32),
        seq_lens=np.array([end for _, _, end in parts], np.int32),
        token_ids=np.concatenate([tokens[row][start:end] for row, start, end in parts]).astype(np.int32),
        positions=np.concatenate([np.arange(start, end) for _, start, end in parts]).astype(np.int32),
        slots=np.concatenate([slots[row][start:end] for row, start, end in parts]).astype(np.int32),
        num_decode=sum(end - start == 1 for _, start, end in parts),
        draws=np.array(chosen, np.int32),
        sampling=SamplingColumns.greedy(len(chosen)),
        before=slot_updates,
        only_decodes=all(end - start == 1 for _, start, end in parts) and len(chosen) == len(parts),
    )
