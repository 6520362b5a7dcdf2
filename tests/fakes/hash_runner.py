"""A runner whose next token is a hash of what it can read through the slot table, and nothing else.

A real pool of one integer per slot and a real slot table: if the scheduler ever hands out a wrong slot, forgets a fill,
lets a prefix be overwritten or shares what it should not, the tokens differ from `expected_output`, which sees only the
prompt. Where a token is banned, the next one that is not banned stands in for it.
"""

import zlib
from collections.abc import Collection

import numpy as np

from ramet.runtime.engine.batch import Batch, Done, StepResult

VOCABULARY = 97
NEVER_WRITTEN = -7


def next_token(sequence: np.ndarray, banned: Collection[int] = ()) -> int:
    token = zlib.crc32(sequence.astype(np.int32).tobytes()) % VOCABULARY
    while token in banned:
        token = (token + 1) % VOCABULARY
    return token


def expected_output(prompt: list[int], num_new: int, banned: Collection[int] = (), until: int = 0) -> list[int]:
    """The first `until` tokens avoid the `banned` ones."""
    sequence = list(prompt)
    for i in range(num_new):
        sequence.append(next_token(np.array(sequence, dtype=np.int32), banned if i < until else ()))
    return sequence[len(prompt) :]


class HashRunner:
    vocab_size = VOCABULARY

    def __init__(self, max_total_tokens: int, max_running: int, context_length: int, page_size: int = 1) -> None:
        self.max_total_tokens, self.max_running, self.context_length = max_total_tokens, max_running, context_length
        self.pool = np.full(max_total_tokens + page_size, NEVER_WRITTEN, dtype=np.int32)
        self.table = np.zeros((max_running + 1, context_length + 1), dtype=np.int32)
        self.page_size = page_size
        self.steps = 0
        self.computed_tokens = 0
        self.largest_step = 0
        self.draws: list[tuple[int, int]] = []  # (seed, position) of every token that was drawn, in order
        self.break_rows: set[int] = set()  # rows whose next draw is "not finite"

    def launch(self, batch: Batch) -> Done:
        self.steps += 1
        self.computed_tokens += len(batch.token_ids)
        self.largest_step = max(self.largest_step, len(batch.token_ids))
        self._check_shapes(batch)
        for fill in batch.fills:
            self.table[fill.row, fill.start : fill.start + len(fill.slots)] = fill.slots
        rows = np.repeat(batch.rows, batch.num_new)
        self.table[rows, batch.positions] = batch.slots
        self.pool[batch.slots] = batch.token_ids
        self.draws += zip(batch.sampling.seeds.tolist(), batch.sampling.positions.tolist(), strict=True)
        banned = {at: set(ids.tolist()) for at, ids in batch.sampling.banned}
        drawn = [self._draw(batch, int(i), banned.get(at, set())) for at, i in enumerate(batch.draws)]
        broken = tuple(i for i, at in enumerate(batch.draws) if int(batch.rows[at]) in self.break_rows)
        return Done(StepResult(np.array(drawn, dtype=np.int32), broken))

    def _draw(self, batch: Batch, i: int, banned: set[int]) -> int:
        read = self.pool[self.table[batch.rows[i], : batch.seq_lens[i]]]
        assert NEVER_WRITTEN not in read, "a slot is read that was never written"
        return next_token(read, banned)

    def _check_shapes(self, batch: Batch) -> None:
        assert batch.slots.min() >= self.page_size, "the padding page was handed out"
        assert len(set(batch.slots.tolist())) == len(batch.slots), "one slot for two tokens of a step"
        assert len(set(batch.rows.tolist())) == len(batch.rows) and batch.rows.min() > 0
        assert (batch.num_new[: batch.num_decode] == 1).all() and batch.num_new.sum() == len(batch.token_ids)
