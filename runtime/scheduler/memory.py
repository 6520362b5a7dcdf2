"""The memory of rows: slots and the lease of a prefix, from the first known token to the last.

Knows the cache and the rows, not who runs. `occupy`, `add_pages`, `publish`, `replace` and `leave` are the only ways
memory changes hands. What a step in flight reads or writes is freed when that step has been confirmed, not before.
"""

import numpy as np

from ramet.runtime.arrays import Ints
from ramet.runtime.cache.prefix import NO_SLOTS, PrefixCache
from ramet.runtime.engine.extras import Command, SlotCopy, SlotUpdate
from ramet.runtime.scheduler.deferred import Left, LeftBehind
from ramet.runtime.scheduler.features.states import RowStates
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RowTable, RunningRequest


class RowMemory:
    def __init__(self, cache: PrefixCache, table: RowTable, left: LeftBehind, states: RowStates | None) -> None:
        """`states`: of a model whose layers have them; None: keys and values are all that is kept."""
        self.cache, self._table, self._left, self.states = cache, table, left, states
        self.commands: list[Command] = []  # for the runner, before the next step
        self._slot_updates: dict[int, tuple[int, int]] = {}  # row -> [start, stop) that the runner's table lacks

    def owned_tokens(self, running: RunningRequest) -> int:
        """Slots of a row that the tree does not have."""
        return int(self._table.allocated[running.row]) - running.leased

    def occupy(self, running: RunningRequest, prefix: Ints) -> bool:
        """Slots for every known token, beside `prefix` [leased], which are others'.

        False (and nothing taken): memory is short, even after eviction.
        """
        row, page, base = running.row, self.cache.page_size, running.base_length
        held, num_tokens = int(self._table.allocated[row]), len(running.request.tokens)
        slots = self.cache.allocate(-(-(num_tokens - base) // page) - (held - base) // page)
        if slots is None:
            return False
        self._table.slots[row, held : held + len(slots)] = slots
        self._table.allocated[row] = held + len(slots)
        self._table.slots[row, : len(prefix)] = prefix
        if len(prefix):
            self._slot_updates[row] = (0, len(prefix))
        return True

    def without_slot(self, decoding: Ints) -> Ints:
        """Rows that have no slot for the token they read next."""
        return decoding[self._table.allocated[decoding] <= self._table.scheduled[decoding]]

    def add_pages(self, rows: Ints) -> bool:
        """One fresh page for each row; False: memory is short."""
        page, table = self.cache.page_size, self._table
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
        tokens, slots = self._table.tokens[row, computed], self._table.slots[row, computed]
        running.lease, duplicates = self.cache.publish(running.lease, tokens, slots)
        if len(duplicates):  # the tree has put its own slots in the place of ours
            running.request.flags |= RowFlag.READS_OTHERS
            start, stop = self._slot_updates.get(row, (before, before))
            self._slot_updates[row] = min(start, before), max(stop, before + len(duplicates))
            self._left.add(Left(int(self._table.last_steps[row]), duplicates))
        if self.states is not None:
            self.states.publish(running)

    def publish_all(self, running: RunningRequest) -> None:
        """It computes nothing more: as `publish`, and with the state that it ends in."""
        if self.states is not None:
            self.states.end(running)
        self.publish(running)

    def replace(self, running: RunningRequest, num_dropped: int, num_new: int) -> bool:
        """Take back the last known tokens and find slots for new ones in their place; False: memory is short.

        Keys and values, slots, lease and planned steps follow; results of steps that were planned before are dropped.
        Then `append` each token to the request, and `RunningSet.extend` it.

            tokens  [0, kept)  stay known             [kept, total)  dropped       [kept, kept + num_new)  appended next
            slots   [0, leased)  still the tree's     [leased, held)  were the tree's: fresh ones in their place
                    [held, allocated)  its own        [allocated, ...)  fresh, for what the new tokens need beyond that
        """
        row, table, page, base = running.row, self._table, self.cache.page_size, running.base_length
        kept, held, allocated = running.total - num_dropped, running.leased, int(table.allocated[row])
        computed = min(running.applied, kept, kept + num_new - 1)  # what draws next must be read once more
        lease, place, goes_back = running.lease, 0, self.states is not None and computed < running.scheduled
        if self.states is not None and goes_back:
            computed, place = self.states.rewind(running, computed)
        if computed < held:
            lease = self.cache.shorten(lease, table.tokens[row, base:computed])
        leased = base + lease.length
        given_back = held - leased
        needed = kept + num_new
        if computed == needed - 1:
            needed -= 1  # one token that is read next, as after a draw: make_room finds its slot
        num_pages = max(-(-(needed - base) // page) - (allocated - base) // page, 0) + given_back // page
        slots = self.cache.allocate(num_pages)
        if slots is None:
            if lease is not running.lease:
                self.cache.release(lease)
            return False
        table.slots[row, leased:held] = slots[:given_back]
        table.slots[row, allocated : allocated + len(slots) - given_back] = slots[given_back:]
        table.allocated[row] = allocated + len(slots) - given_back
        if lease is not running.lease:
            self._left.add(Left(int(table.last_steps[row]), NO_SLOTS, running.lease))
            running.lease, computed = lease, min(computed, leased)
        if self.states is not None and goes_back:
            self.states.rewound(running, kept, computed, place)
        if num_dropped or table.planned_totals[row] > kept:
            for each in running.request.own.values():
                each.rewound(kept, running.applied)
            table.totals[row] = table.planned_totals[row] = kept
            table.scheduled[row] = table.applied[row] = computed
            running.drop_results()
        return True

    def vacate(self, row: int) -> None:
        """No later step has this row: the runner's table need not know its slots."""
        self._slot_updates.pop(row, None)

    def leave(self, running: RunningRequest) -> None:
        """Give back everything that a request or a part of one has, and its row."""
        row, table = running.row, self._table
        if self.states is not None:
            self.states.leave(running)
        own = table.slots[row, running.leased : int(table.allocated[row])].copy()
        self._left.add(Left(int(table.last_steps[row]), own, running.lease, row))

    def take_commands(self) -> tuple[Command, ...]:
        """What the runner does before the next step: slots are copied, and put into its table, last."""
        commands, self.commands = self.commands, []
        for source, target in self.cache.take_copies():
            commands.append(SlotCopy(source, target))
        if self.states is not None:
            commands += self.states.take_copies()
        for row, (start, stop) in self._slot_updates.items():
            commands.append(SlotUpdate(row, start, self._table.slots[row, start:stop].copy()))
        self._slot_updates.clear()
        return tuple(commands)
