"""Known tokens that change otherwise than by a draw: some are taken back, and others come that no step draws.

Keys and values, slots, lease, states and planned steps follow. Used by constraints, healing and stop patterns; a row
whose tokens are only drawn never gets here.
"""

from ramet.runtime.cache.prefix import NO_SLOTS
from ramet.runtime.scheduler.features.states import RowStates
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.running import RunningSet


class RewrittenRows:
    """`states`: of a model whose layers have them; None: keys and values are all that is kept of a row."""

    def __init__(self, running: RunningSet, states: RowStates | None) -> None:
        self._running, self._memory, self._table, self._states = running, running.memory, running.table, states

    def extend(self, running: RunningRequest) -> None:
        """Plan all known tokens: those that were appended have been seen by nobody."""
        self._running.extend(running)
        for feature in self._running.features_of(running.row):
            self._memory.commands += feature.changed(running)

    def take_back(self, running: RunningRequest) -> None:
        """Its last token should not have been drawn: the one before it is read once more."""
        table, row = self._table, running.row
        if self.replace(running, 1, 0):
            self.extend(running)
        else:
            table.totals[row] -= 1
            table.planned_totals[row] = table.totals[row]
            self._running.retract_next(running)
        self.forget(running)

    def drop_planned(self, running: RunningRequest) -> None:
        """What steps in flight draw for it is dropped, and drawn once more when it is planned again."""
        table, row = self._table, running.row
        if table.planned_totals[row] == table.totals[row]:
            return
        if self.replace(running, 0, 0):
            self.extend(running)
        else:
            running.drop_results()
            table.planned_totals[row] = table.totals[row]
            self._running.retract_next(running)

    def forget(self, running: RunningRequest) -> None:
        """Tokens were taken back that a feature of the row may remember."""
        for feature in self._running.features_of(running.row):
            self._memory.commands += feature.taken_back(running)

    def replace(self, running: RunningRequest, num_dropped: int, num_new: int) -> bool:
        """Take back the last known tokens and find slots for new ones in their place; False: memory is short.

        Keys and values, slots, lease and planned steps follow; results of steps that were planned before are dropped.
        Then `append` each token to the request, and `extend` it.

            tokens  [0, kept)  stay known             [kept, total)  dropped       [kept, kept + num_new)  appended next
            slots   [0, leased)  still the tree's     [leased, held)  were the tree's: fresh ones in their place
                    [held, allocated)  its own        [allocated, ...)  fresh, for what the new tokens need beyond that
        """
        row, table, cache, base = running.row, self._table, self._memory.cache, running.base_length
        kept, held, allocated = running.total - num_dropped, running.leased, int(table.allocated[row])
        computed = min(running.applied, kept, kept + num_new - 1)  # what draws next must be read once more
        lease, place, goes_back = running.lease, 0, self._states is not None and computed < running.scheduled
        if self._states is not None and goes_back:
            computed, place = self._states.rewind(running, computed)
        if computed < held:
            lease = cache.shorten(lease, table.tokens[row, base:computed])
        leased = base + lease.length
        given_back = held - leased
        needed = kept + num_new
        if computed == needed - 1:
            needed -= 1  # one token that is read next, as after a draw: make_room finds its slot
        page = cache.page_size
        num_pages = max(-(-(needed - base) // page) - (allocated - base) // page, 0) + given_back // page
        slots = cache.allocate(num_pages)
        if slots is None:
            if lease is not running.lease:
                cache.release(lease)
            return False
        table.slots[row, leased:held] = slots[:given_back]
        table.slots[row, allocated : allocated + len(slots) - given_back] = slots[given_back:]
        table.allocated[row] = allocated + len(slots) - given_back
        if lease is not running.lease:
            self._memory.deferred.add(int(table.last_steps[row]), NO_SLOTS, running.lease)
            running.lease, computed = lease, min(computed, leased)
        if self._states is not None and goes_back:
            self._states.rewound(running, kept, computed, place)
        if num_dropped or table.planned_totals[row] > kept:
            for each in running.request.own.values():
                each.rewound(kept, running.applied)
            table.totals[row] = table.planned_totals[row] = kept
            table.scheduled[row] = table.applied[row] = computed
            running.drop_results()
        return True
