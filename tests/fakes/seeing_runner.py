"""A device on which each token's keys are a hash of its id, its position and all that it sees.

So a token shows what was computed at a wrong position, or saw a context that it must not see. `SeeingModel` is what
must come out, a function of the prompt alone.
"""

import zlib
from typing import Any

import numpy as np
from context_prompts import layout
from delayed_runner import DelayedRunner
from hash_runner import HashRunner, logprob, next_token

from ramet.ipc.content import Contexts
from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.extras import PositionOffsets


def keys_of(token: int, position: int, seen: np.ndarray) -> int:
    return zlib.crc32(np.array([token, position, *seen], dtype=np.int32).tobytes()) & 0x7FFFFFFF


class SeeingModel:
    def __init__(self, prompt: list[int], contexts: Contexts) -> None:
        self.ids, self._contexts = list(prompt), contexts
        self._keys: list[int] = []
        self._read(len(prompt))

    def _read(self, num_ids: int) -> None:
        self._positions, self.sees = layout(num_ids, self._contexts)
        for i in range(len(self._keys), num_ids):
            seen = np.array(self._keys, dtype=np.int32)[self.sees[i, :i]]
            self._keys.append(keys_of(self.ids[i], int(self._positions[i]), seen))

    def reads(self, i: int) -> np.ndarray:
        """Keys that token i sees, its own included."""
        return np.array(self._keys, dtype=np.int32)[: i + 1][self.sees[i, : i + 1]]

    def output(self, num_new: int, repeats: bool = True) -> list[int]:
        first = len(self.ids)
        for _ in range(num_new):
            banned = () if repeats else set(self.ids[first:])
            self.ids.append(next_token(self.reads(len(self.ids) - 1), banned))
            self._read(len(self.ids))
        return self.ids[len(self.ids) - num_new :]

    def logprob(self, i: int) -> float:
        """Of token i after the last token before it that it sees."""
        return logprob(self.reads(int(np.flatnonzero(self.sees[i, :i])[-1])), self.ids[i])


class _Seeing:
    def compute(self, batch: Batch) -> None:
        super().compute(batch)  # type: ignore[misc]
        offsets = batch.input(PositionOffsets)
        shifts = np.zeros(len(batch.rows), np.int32) if offsets is None else offsets.values
        for row, num_new, length, shift in zip(batch.rows, batch.num_new, batch.seq_lens, shifts, strict=True):
            slots = self.table[row, :length]  # type: ignore[attr-defined]
            for i in range(length - num_new, length):
                pool: Any = self.pool  # type: ignore[attr-defined]
                pool[slots[i]] = keys_of(pool[slots[i]], i - shift, pool[slots[:i]])


class SeeingRunner(_Seeing, HashRunner):
    pass


class LateSeeingRunner(_Seeing, DelayedRunner):
    pass
