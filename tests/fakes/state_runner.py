"""A HashRunner with states: of each row a hash of every token it has seen, which must agree with what its slots say.

A state that is copied too early or too late, from or to the wrong place, not taken back or shared shows at once.
"""

import zlib
from typing import Any

from delayed_runner import DelayedRunner
from hash_runner import HashRunner

from ramet.runtime.cache.state_places import StateCopy, StateSaves
from ramet.runtime.engine.batch import Batch

NOTHING_SEEN = 0


def seen(state: int, token: int) -> int:
    return zlib.crc32(int(token).to_bytes(4, "little", signed=True), state)


class _WithStates:
    num_snapshots = 6
    num_restored = num_saved = 0
    states: list[int]

    def compute(self: Any, batch: Batch) -> None:
        if not hasattr(self, "states"):
            self.states = [-1] * (self.max_running + 1 + self.num_snapshots)
        for source, target in (each for each in batch.before if isinstance(each, StateCopy)):
            assert self.states[source] >= 0, "a state is copied that was never written"
            self.states[target] = self.states[source]
            self.num_restored += source > self.max_running
            self.num_saved += target > self.max_running
        super().compute(batch)  # type: ignore[misc]
        self._go_on(batch)

    def _go_on(self: Any, batch: Batch) -> None:
        saves = batch.input(StateSaves)
        for r, (row, num, length) in enumerate(zip(batch.rows, batch.num_new, batch.seq_lens, strict=True)):
            tokens = self.pool[self.table[row, :length]]
            state = NOTHING_SEEN if num == length else self.states[row]
            for i in range(num):
                state = seen(state, tokens[length - num + i])
                for at, to in [] if saves is None else zip(saves.at[r], saves.to[r], strict=True):
                    if at == i + 1:
                        self.states[to] = state
                        self.num_saved += 1
            self.states[row] = state
            whole = NOTHING_SEEN
            for token in tokens:
                whole = seen(whole, token)
            assert state == whole, f"row {row} has not the state of its {length} tokens"


class StateRunner(_WithStates, HashRunner):
    pass


class DelayedStateRunner(_WithStates, DelayedRunner):
    pass
