"""The states of rows that run, of models whose layers have them: where a row begins, and when a snapshot is taken.

Decides the positions of snapshots; each is a multiple of a page, and further than MIN_GAP tokens from the one before:

    of a prompt    where it leaves what is cached (the next prompt that does will find it), and its last whole page of
                   which a token is left to compute
    of an output   each INTERVAL tokens, of which a row keeps the last, and where the row ends or is retracted, if no
                   step that was planned has gone on by then

A row's state is at its own number, after every token that is scheduled. Snapshots of a prompt are copied inside the
step that computes it, others before the next step. A snapshot is the row's until its tokens are published. Knows rows
and places, no tensor.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ramet.runtime.arrays import Flags, Ints
from ramet.runtime.cache.node import Namespace
from ramet.runtime.cache.state_places import StateCopy, StateSaves
from ramet.runtime.cache.stateful import StatefulCache
from ramet.runtime.engine.extras import Command
from ramet.runtime.scheduler.deferred import DeferredFrees
from ramet.runtime.scheduler.memory import RowMemory
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RowTable, RunningRequest
from ramet.runtime.scheduler.step import Step, StepBuilder
from ramet.runtime.scheduler.unpublished import UnpublishedPrefixes

MIN_GAP = 16  # tokens: to compute fewer again costs less than a place
INTERVAL = 256  # tokens
MAX_WANTED = 4  # positions of a prompt


class Snapshot(NamedTuple):
    position: int  # tokens that the state has seen
    place: int


@dataclass(slots=True)
class _Row:
    wanted: list[int]  # positions in its prompt that are not computed yet, ascending
    newest: int  # the last position of which there is a snapshot, or one is planned
    taken: list[Snapshot]  # that are computed and not published


class RowStates:
    def __init__(self, cache: StatefulCache, table: RowTable) -> None:
        self._cache, self._table, self._page = cache, table, cache.page_size
        self._interval = -(-INTERVAL // self._page) * self._page
        self._rows: dict[int, _Row] = {}
        self._copies: list[StateCopy] = []  # that no batch has, in their order
        # by number of a step whose result was not applied: (index of the row in its batch, snapshot)
        self._planned: dict[int, list[tuple[int, Snapshot]]] = {}

    @property
    def num_taken(self) -> int:
        planned = sum(map(len, self._planned.values()))
        return planned + sum(len(each.taken) for each in self._rows.values())

    # -- the life of a row ------------------------------------------------------------------------------------------

    def begin(self, running: RunningRequest) -> None:
        """Its prefix is leased: its state is a copy of that prefix's, or begins anew with its first token."""
        lease, row = running.lease, running.row
        self._table.flags[row] |= RowFlag.STATES
        if lease.length:
            assert lease.node is not None and lease.node.state, "a prefix is leased that has no state"
            self._copies.append(StateCopy(lease.node.state, row))
        self._rows[row] = _Row([], lease.length, [])
        last = (len(running.request.tokens) - 1) // self._page * self._page
        self.want(running, lease.matched)
        self.want(running, last)

    def want(self, running: RunningRequest, position: int) -> None:
        """A snapshot after so many tokens of its prompt, if they are still to be computed."""
        own = self._rows[running.row]
        position -= position % self._page
        nearest = min((abs(position - other) for other in (*own.wanted, own.newest)), default=position)
        if position > running.scheduled and nearest >= MIN_GAP and len(own.wanted) < MAX_WANTED:
            own.wanted = sorted([*own.wanted, position])

    def want_shared(self, computing: Sequence[RunningRequest], tokens: Ints, namespace: Namespace) -> None:
        """Another request waits for what these compute of `tokens`: each as far as it shares them."""
        for running in computing:
            if running.lease.namespace == namespace:
                known = running.request.tokens[: len(tokens)]
                differs = known != tokens[: len(known)]
                self.want(running, int(differs.argmax()) if differs.any() else len(known))

    def rewind(self, running: RunningRequest, computed: int) -> tuple[int, int]:
        """(tokens, place of their state), of the tokens before `computed`: where the row can go on; (0, 0): anew."""
        tokens = self._table.tokens[running.row, :computed]
        node, length = self._cache.longest(tokens, running.lease.namespace) if self._cache.enabled else (None, 0)
        return length, 0 if node is None else node.state

    def rewound(self, running: RunningRequest, kept: int, computed: int, place: int) -> None:
        """It has `kept` tokens and goes on after `computed` of them, with the state at `place`, as `rewind` said."""
        own = self._rows[running.row]
        if place:
            self._copies.append(StateCopy(place, running.row))
        for snapshot in own.taken:
            if snapshot.position > kept:
                self._cache.give_back(snapshot.place)
        own.taken = [each for each in own.taken if each.position <= kept]
        own.newest = min(own.newest, computed)

    def end(self, running: RunningRequest) -> None:
        """It publishes for the last time: where its state is that of all computed tokens, there is a snapshot of it."""
        own, applied = self._rows[running.row], running.applied
        if running.scheduled == applied and applied % self._page == 0 and applied - own.newest >= MIN_GAP:
            place = self._cache.take_place()
            if place is not None:
                self._copies.append(StateCopy(running.row, place))
                own.taken.append(Snapshot(applied, place))
                own.newest = applied

    def publish(self, running: RunningRequest) -> None:
        """Its tokens are the tree's, and with them the snapshots; of some it may be computing the tokens once more."""
        own = self._rows[running.row]
        for position, place in own.taken:
            if position <= running.applied:
                self._cache.attach(self._table.tokens[running.row, :position], running.lease.namespace, place)
        own.taken = [each for each in own.taken if each.position > running.applied]

    def leave(self, running: RunningRequest) -> None:
        for snapshot in self._rows.pop(running.row).taken:
            self._cache.give_back(snapshot.place)

    # -- what steps are made of -------------------------------------------------------------------------------------

    def take_copies(self) -> tuple[StateCopy, ...]:
        """Before the step that is planned next."""
        copies, self._copies = tuple(self._copies), []
        return copies

    def plan(self, step: StepBuilder) -> None:
        """Call `take_copies` before: what is copied of states that this step draws from is for the step after."""
        rows, ends, num_decoding = step.rows, step.ends, step.num_decoding
        planned = list(self._of_outputs(rows[:num_decoding], ends[:num_decoding]))
        prompts = [
            (index, self._of_prompt(int(rows[index]), int(ends[index]))) for index in range(num_decoding, len(rows))
        ]
        planned += [(index, each) for index, found in prompts for each in found]
        if planned:
            self._planned[step.number] = planned
        most = max((len(found) for _, found in prompts), default=0)
        if not most:
            return
        at, to = np.zeros((len(rows), most), np.int32), np.zeros((len(rows), most), np.int32)
        for index, found in prompts:
            for i, (position, place) in enumerate(found):
                at[index, i], to[index, i] = position - int(step.starts[index]), place
        step.inputs.append(StateSaves(at, to))

    def apply(self, step: Step, alive: Flags) -> None:
        """A step was computed; rows [R] that are not `alive` have left or were taken back since."""
        rows = step.batch.rows
        for index, snapshot in self._planned.pop(step.number, ()):
            if not alive[index]:
                self._cache.give_back(snapshot.place)
                continue
            row = int(rows[index])
            own, prompt = self._rows[row], int(self._table.prompt_lens[row])
            if snapshot.position > prompt:  # an output keeps its last
                for earlier in own.taken:
                    if earlier.position > prompt:
                        self._cache.give_back(earlier.place)
                own.taken = [earlier for earlier in own.taken if earlier.position <= prompt]
            own.taken.append(snapshot)

    def _of_outputs(self, rows: Ints, ends: Ints) -> Iterator[tuple[int, Snapshot]]:
        for index in np.flatnonzero(ends % self._interval == 0).tolist():
            row, position = int(rows[index]), int(ends[index])
            if position - self._rows[row].newest >= MIN_GAP and (place := self._cache.take_place()) is not None:
                self._copies.append(StateCopy(row, place))
                self._rows[row].newest = position
                yield index, Snapshot(position, place)

    def _of_prompt(self, row: int, end: int) -> list[Snapshot]:
        own, found = self._rows[row], []
        while own.wanted and own.wanted[0] <= end:
            position = own.wanted.pop(0)
            if (place := self._cache.take_place()) is not None:
                found.append(Snapshot(position, place))
                own.newest = position
        return found


class StatefulMemory(RowMemory):
    """The memory of rows whose layers have states, which follow keys and values wherever these change hands."""

    def __init__(self, cache: StatefulCache, table: RowTable, deferred: DeferredFrees) -> None:
        super().__init__(cache, table, deferred)
        self.states = RowStates(cache, table)

    def occupy(self, running: RunningRequest, prefix: Ints) -> bool:
        if not super().occupy(running, prefix):
            return False
        self.states.begin(running)
        return True

    def publish(self, running: RunningRequest) -> None:
        super().publish(running)
        self.states.publish(running)

    def publish_all(self, running: RunningRequest) -> None:
        self.states.end(running)
        self.publish(running)

    def leave(self, running: RunningRequest) -> None:
        self.states.leave(running)
        super().leave(running)

    def take_commands(self) -> tuple[Command, ...]:
        return super().take_commands() + self.states.take_copies()


class StatefulPrefixes(UnpublishedPrefixes):
    """Prefixes that are being computed: where another request waits for one, its end gets a snapshot."""

    def __init__(self, memory: StatefulMemory, prefilling: Callable[[], Sequence[RunningRequest]]) -> None:
        super().__init__(memory.cache.page_size)
        self._memory, self._prefilling = memory, prefilling

    def worth_waiting(self, tokens: Ints, namespace: Namespace, matched: int) -> int:
        """`matched` tokens have a state; as many as their keys are there are not waited for."""
        matched = self._memory.cache.peek_keys(tokens, namespace)
        gain = super().worth_waiting(tokens, namespace, matched)
        if gain:
            self._memory.states.want_shared(self._prefilling(), tokens[: matched + gain], namespace)
        return gain
