"""The memory of rows: slots and the lease of a prefix, from the first known token to the last.

Knows the cache and the rows, not who runs. `occupy`, `add_pages`, `publish` and `leave` are the ways memory changes
hands, and where tokens are taken back, `RewrittenRows.replace` (features/rewriting.py). What a step in flight reads or
writes is freed when that step has been confirmed, not before.
"""

import numpy as np

from ramet.runtime.arrays import Ints
from ramet.runtime.cache.prefix import PrefixCache
from ramet.runtime.engine.extras import Command, SlotCopy, SlotUpdate
from ramet.runtime.scheduler.deferred import DeferredFrees
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RowTable, RunningRequest


class RowMemory:
    """Keys and values. Models that keep more of a row have a subclass (features/states.py)."""

    def __init__(self, cache: PrefixCache, table: RowTable, deferred: DeferredFrees) -> None:
        self.cache, self.table, self.deferred = cache, table, deferred
        self.commands: list[Command] = []  # for the runner, before the next step
        self._slot_updates: dict[int, tuple[int, int]] = {}  # row -> [start, stop) that the runner's table lacks

    def owned_tokens(self, running: RunningRequest) -> int:
        """Slots of a row that the tree does not have."""
        return int(self.table.allocated[running.row]) - running.leased

    def occupy(self, running: RunningRequest, prefix: Ints) -> bool:
        """Slots for every known token, beside `prefix` [leased], which are others'.

        False (and nothing taken): memory is short, even after eviction.
        """
        row, page, start = running.row, self.cache.page_size, running.base_length  # where its own pages begin
        held, num_tokens = int(self.table.allocated[row]), len(running.request.tokens)
        slots = self.cache.allocate(-(-(num_tokens - start) // page) - (held - start) // page)
        if slots is None:
            return False
        self.table.slots[row, held : held + len(slots)] = slots
        self.table.allocated[row] = held + len(slots)
        self.table.slots[row, : len(prefix)] = prefix
        if len(prefix):
            self._slot_updates[row] = (0, len(prefix))
        return True

    def without_slot(self, decoding: Ints) -> Ints:
        """Rows that have no slot for the token they read next."""
        return decoding[self.table.allocated[decoding] <= self.table.scheduled[decoding]]

    def add_pages(self, rows: Ints) -> bool:
        """One fresh page for each row; False: memory is short."""
        page, table = self.cache.page_size, self.table
        slots = self.cache.allocate(len(rows))
        if slots is None:
            return False
        at = table.allocated[rows]
        table.slots[rows[:, None], at[:, None] + np.arange(page)] = slots.reshape(len(rows), page)
        table.allocated[rows] = at + page
        return True

    def publish(self, running: RunningRequest) -> None:
        """Share what is computed: whole pages go to the tree."""
        row, before = running.row, running.leased
        computed = slice(running.base_length, running.applied)
        tokens, slots = self.table.tokens[row, computed], self.table.slots[row, computed]
        running.lease, duplicates = self.cache.publish(running.lease, tokens, slots)
        if len(duplicates):  # the tree has put its own slots in the place of ours
            running.request.flags |= RowFlag.READS_OTHERS
            start, stop = self._slot_updates.get(row, (before, before))
            self._slot_updates[row] = min(start, before), max(stop, before + len(duplicates))
            self.deferred.add(int(self.table.last_steps[row]), duplicates)

    def publish_all(self, running: RunningRequest) -> None:
        """Share everything that is computed: it computes nothing more."""
        self.publish(running)

    def vacate(self, row: int) -> None:
        """No later step has this row: the runner's table need not know its slots."""
        self._slot_updates.pop(row, None)

    def leave(self, running: RunningRequest) -> None:
        """Give back everything that a row has, and the row itself."""
        row, table = running.row, self.table
        own = table.slots[row, running.leased : int(table.allocated[row])].copy()
        self.deferred.add(int(table.last_steps[row]), own, running.lease, row)

    def take_commands(self) -> tuple[Command, ...]:
        """What the runner does before the next step: slots are copied, and put into its table, last."""
        commands, self.commands = self.commands, []
        for source, target in self.cache.take_copies():
            commands.append(SlotCopy(source, target))
        for row, (start, stop) in self._slot_updates.items():
            commands.append(SlotUpdate(row, start, self.table.slots[row, start:stop].copy()))
        self._slot_updates.clear()
        return tuple(commands)
