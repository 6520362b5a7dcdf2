"""The running requests and the memory each holds: row, slots, lease. Decides which is retracted when memory runs out.

Knows the cache and the rows, not the policy and not the device. `take`, `make_room`,
`publish` and `end` are the only ways memory changes hands. What a step in flight reads or writes is freed when that
step has been confirmed, not before.
"""

from collections.abc import Callable, Iterator
from enum import Flag, auto

import numpy as np

from ramet.ipc.message import Uid
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.node import Namespace
from ramet.runtime.cache.prefix import NO_SLOTS, Lease, PrefixCache, RowAllocator
from ramet.runtime.engine.extras import Command, SlotCopy, SlotUpdate
from ramet.runtime.sampling.columns import Forget, PenaltyReset
from ramet.runtime.scheduler.deferred import Left, LeftBehind
from ramet.runtime.scheduler.features.adapters import AdapterSlots
from ramet.runtime.scheduler.features.assembly import Assembly, part_of
from ramet.runtime.scheduler.features.parts import Parts
from ramet.runtime.scheduler.features.states import RowStates
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.rows import RowFlag, RowTable, RunningRequest


class Hold(Flag):
    """Why a request takes part in no step."""

    ASIDE = auto()  # it is not known what it may draw
    SLOW = auto()  # it has taken more than its share of the thread
    LATE = auto()  # what its constraint or stop patterns need is done in a later turn


class RunningSet:
    """Every running request, in the order they were admitted."""

    def __init__(
        self,
        cache: PrefixCache,
        rows: RowAllocator,
        penalty_slots: RowAllocator,
        table: RowTable,
        give_way: Callable[[bool], bool],
        fail: Callable[[RunningRequest, str], None],
        prompt_is_seen: bool = False,
        num_adapters: int = 1,
        states: RowStates | None = None,
    ) -> None:
        """`give_way` ends something that is kept for a client, if that gives memory; False: there is nothing. Its
        argument: no request can be retracted, so leases that clients have asked for end as well. `fail` ends a request
        with an error.

        `prompt_is_seen`: repetition penalties count the prompt's tokens as drawn. `num_adapters`: slots of them.
        `states`: of a model whose layers have them; None: keys and values are all that is kept.
        """
        self._cache, self.free_rows, self.penalty_slots = cache, rows, penalty_slots
        self.table, self._give_way, self._fail = table, give_way, fail
        self._prompt_is_seen, self.states = prompt_is_seen, states
        self._running: dict[Uid, RunningRequest] = {}
        self._by_row: list[RunningRequest | None] = [None] * len(table.uids)
        self._prefilling: dict[Uid, RunningRequest] = {}
        self._extending: dict[Uid, RunningRequest] = {}  # their outputs have tokens that nobody drew
        self._decoding: Ints | None = None  # rows; None: look again
        self._admitted: Ints | None = None  # all rows; None: look again
        self.held: dict[Uid, Hold] = {}  # requests that take part in no step for now
        self.parts = Parts(table, first_row=rows.num_rows + 1)
        self.left = LeftBehind(cache, rows, self.parts.rows, penalty_slots)
        self.adapters = AdapterSlots(num_adapters)
        self._slot_updates: dict[int, tuple[int, int]] = {}  # row -> [start, stop) that the runner's table lacks
        self.commands: list[Command] = []  # for the runner, before the next step
        self._num_serial = 0  # running requests that are planned only when their last token is known
        self._stuck: list[RunningRequest] = []
        self.num_retractions = 0

    def __len__(self) -> int:
        return len(self._running)

    @property
    def cache(self) -> PrefixCache:
        return self._cache

    def __iter__(self) -> Iterator[RunningRequest]:
        return iter(list(self._running.values()))

    def get(self, uid: Uid) -> RunningRequest | None:
        return self._running.get(uid)

    def at(self, row: int) -> RunningRequest:
        """Whoever runs in `row`."""
        running = self._by_row[row]
        assert running is not None, f"no request runs in row {row}"
        return running

    @property
    def prefilling(self) -> list[RunningRequest]:
        """Those with known tokens that no step draws and none computes yet: outputs first, then prompts as admitted."""
        every = [*self._extending.values(), *self._prefilling.values()]
        return [each for each in every if each.uid not in self.held] if self.held else every

    @property
    def rows(self) -> Ints:
        """Of all that run, in the order they were admitted."""
        if self._admitted is None:
            self._admitted = np.fromiter((each.row for each in self._running.values()), np.int32, len(self._running))
            self._admitted.setflags(write=False)
        return self._admitted

    @property
    def decoding(self) -> Ints:
        """Rows whose next token can be planned now: all known tokens but the last are scheduled, more may follow."""
        if self._decoding is None:
            waits = self._prefilling.keys() | self._extending.keys() | self.held.keys()
            if self.parts.assemblies:
                waits |= {assembly.owner.uid for assembly in self.parts.open}
            decoding = [each.row for each in self._running.values() if each.uid not in waits]
            self._decoding = np.array(decoding, dtype=np.int32)
        rows, table = self._decoding, self.table
        planned = table.planned_totals[rows]
        able = (planned < table.limits[rows]) & (planned <= table.ends[rows])
        if self._num_serial:  # the token that is being drawn must come first
            able &= (planned == table.totals[rows]) | ((table.flags[rows] & RowFlag.SERIAL) == 0)
        return rows if able.all() else rows[able]

    @property
    def num_in_output(self) -> int:
        """Running requests that wait for their next token, and for no prompt."""
        waits = self._prefilling.keys() | {assembly.owner.uid for assembly in self.parts.open}
        return len(self._running.keys() - waits)

    def hold(self, running: RunningRequest, why: Hold) -> None:
        """Keep a request out of all steps until `release`; after that, it joins a step once its last token is known."""
        self.held[running.uid] = self.held.get(running.uid, Hold(0)) | why
        self._num_serial -= self._is_serial(running)
        self.table.flags[running.row] |= RowFlag.JUMPS
        self._num_serial += self._is_serial(running)
        self._decoding = None

    def release(self, running: RunningRequest, why: Hold) -> None:
        left = self.held.pop(running.uid, Hold(0)) & ~why
        if left:
            self.held[running.uid] = left
        self._decoding = None

    def place_adapter(self, request: Request, drains: bool) -> bool:
        """Find a slot for the adapter of a request that is to run; False: others need all that it could have, or it
        has one and `drains` keeps such requests out.
        """
        adapter = request.spec.lora
        if adapter is None:
            return True
        if drains:
            return False
        needs_slot = not self.adapters.has_slot(adapter.generation)
        used = set(self.table.adapters[self.rows].tolist()) if needs_slot else set[int]()
        slot = self.adapters.take(adapter.generation, used)
        request.adapter_slot = slot or 0
        return slot is not None

    @property
    def num_free_rows(self) -> int:
        return self.free_rows.num_free

    @property
    def num_free_penalty_slots(self) -> int:
        return self.penalty_slots.num_free

    @property
    def num_penalty_slots(self) -> int:
        """Those that are taken."""
        return self.penalty_slots.num_taken

    @property
    def owned_tokens(self) -> int:
        """Slots that belong to running requests, or to steps in flight, and not to the tree."""
        own = sum(int(self.table.allocated[each.row]) - each.leased for each in self._running.values())
        parts = self.parts.owned_tokens if self.parts.assemblies else 0
        return own + parts + sum(map(len, self.left.slots))

    # -- memory -----------------------------------------------------------------------------------------------------

    def take(self, request: Request, lease: Lease, prefix: Ints) -> RunningRequest | None:
        """Run a request whose cached prefix is leased, with slots for every known token; None if memory is short.

        Memory can be too short only for the first that runs (Admission): it waits for steps in flight, and ends leases
        of clients after that.
        """
        row = self.free_rows.allocate()
        running = RunningRequest(request, row, lease, self.table)
        penalty_slot = self.penalty_slots.allocate() if request.params.penalised else 0
        self.table.open(row, request, lease.length, penalty_slot)
        while not self.occupy(running, prefix):
            if self.left.in_flight or not self._give_way(True):
                self.left.add(Left(0, NO_SLOTS, None, row, penalty_slot))
                return None
        if request.cached_tokens is None:
            request.cached_tokens = lease.length
        request.reads_others |= lease.length > 0
        if self.states is not None:
            self.states.begin(running)
        self._enter(running)
        self._prefill(running)
        return running

    def take_apart(self, request: Request, namespace: Namespace) -> RunningRequest:
        """Run a request whose prompt has contexts: it has no slots until they are computed (assembler.py)."""
        row = self.free_rows.allocate()
        running = RunningRequest(request, row, Lease(0, namespace, None), self.table)
        self.table.open(row, request, 0, self.penalty_slots.allocate() if request.params.penalised else 0)
        self._enter(running)
        request.reads_others = True  # maybe
        self.parts.assemblies[request.uid] = Assembly(
            running, namespace, cached=self._cache.enabled, copies=self._cache.copies
        )
        return running

    def take_part(self, request: Request, lease: Lease, slots: Ints) -> bool:
        """Compute a part, whose first `slots` [n] are there; False: memory is short. A row of parts must be free."""
        running = RunningRequest(request, self.parts.rows.allocate(), lease, self.table)
        self.table.open(running.row, request, len(slots), 0)
        if not self.occupy(running, slots):
            self.parts.rows.free(running.row)
            return False
        self.parts.running[request.uid] = running
        self._prefill(running)
        return True

    def take_rest(self, running: RunningRequest, lease: Lease, slots: Ints) -> bool:
        """What follows the contexts of a request, whose base is set: as `take_part`, in its own row."""
        request, nothing = running.request, running.lease
        running.lease = lease
        self.table.begin(running.row, request, len(slots))
        if not self.occupy(running, slots):
            running.lease = nothing
            self.table.begin(running.row, request, 0)
            return False
        running.next_logprob, running.next_hidden = request.next_logprob, request.next_hidden
        self._prefill(running)
        return True

    def _enter(self, running: RunningRequest) -> None:
        request, penalty_slot = running.request, int(self.table.penalty_slots[running.row])
        if penalty_slot:
            self._reset_penalties(request, penalty_slot, request.tokens[request.prompt_len :])
        self._num_serial += self._is_serial(running)
        self._running[request.uid] = self._by_row[running.row] = running
        self._admitted = None

    def occupy(self, running: RunningRequest, prefix: Ints) -> bool:
        """Slots for every known token, beside `prefix` [leased], which are others'; False: memory is short."""
        if not self._grow(running, len(running.request.tokens)):
            return False
        self.table.slots[running.row, : len(prefix)] = prefix
        if len(prefix):
            self._slot_updates[running.row] = (0, len(prefix))
        return True

    def _prefill(self, running: RunningRequest) -> None:
        """Its slots are there: steps may compute what it has known when it began to wait."""
        self._by_row[running.row] = self._prefilling[running.uid] = running

    def take_outgrown(self) -> list[Request]:
        """Requests that are longer now than what they have computed is good for: back to waiting, to begin anew.

        No step in flight has one of them: none is planned once the token that is too much may be drawn.
        """
        outgrown = [each for each in self._running.values() if each.total > self.table.ends[each.row]]
        return [self._take_back(each, is_long=True) for each in outgrown]

    def make_room(self) -> list[Request] | None:
        """A slot for the next token of every decoding row, retracting requests if need be. Returns the retracted.

        What clients hold gives way only when a single request is left that does not fit beside it.
        None: memory is short, but steps are in flight; what they hold may be enough, so apply their results first.
        """
        if self._stuck and self.left.in_flight:
            return None
        stuck, self._stuck = self._stuck, []
        retracted = [request for each in stuck if self._running.get(each.uid) is each for request in self._free(each)]
        while len(rows := self._without_slot()):
            slots = self._cache.allocate(len(rows))
            if slots is not None:
                self._append_pages(rows, slots)
                break
            if self.left.in_flight:
                return None
            retracted += self.free_some()
        return retracted

    def free_some(self) -> list[Request]:
        """Memory is short and no step is in flight: end what is kept for a client, or retract a request.

        One that does not fit alone would come back for ever: it has needed more than was known when it arrived.
        """
        alone = len(self._running) <= 1
        return [] if self._give_way(alone) else self._free(self._victim())

    def retract_next(self, running: RunningRequest) -> None:
        """It cannot go on, for memory is short: it is retracted before anything else is planned."""
        self._stuck.append(running)

    def _free(self, running: RunningRequest) -> list[Request]:
        if len(self._running) > 1:
            return [self.retract(running)]
        self._fail(running, f"does not fit the {self._cache.total_tokens} tokens of the KV pool by itself")
        return []

    def retract_all(self) -> list[Request]:
        """While no step is in flight."""
        return [self.retract(running) for running in self]

    def retract_without_output(self) -> list[Request]:
        """Those of whose output nothing was told. While no step is in flight."""
        return [self.retract(each) for each in self if not each.num_output or each.request.healing is not None]

    def publish(self, running: RunningRequest) -> None:
        """Share what is computed: whole pages go to the tree."""
        row, before = running.row, running.leased
        computed = slice(running.request.base_length, running.applied)
        tokens, slots = self.table.tokens[row, computed], self.table.slots[row, computed]
        running.lease, duplicates = self._cache.publish(running.lease, tokens, slots)
        if len(duplicates):  # the tree has put its own slots in the place of ours
            running.request.reads_others = True
            start, stop = self._slot_updates.get(row, (before, before))
            self._slot_updates[row] = min(start, before), max(stop, before + len(duplicates))
            self.left.add(Left(int(self.table.last_steps[row]), duplicates))
        if self.states is not None:
            self.states.publish(running)

    def publish_all(self, running: RunningRequest) -> None:
        """It computes nothing more: as `publish`, and with the state that it ends in."""
        if self.states is not None:
            self.states.end(running)
        self.publish(running)

    # -- tokens that nobody draws -----------------------------------------------------------------------------------

    def replace(self, running: RunningRequest, num_dropped: int, num_new: int) -> bool:
        """Take back the last known tokens and find slots for new ones in their place; False: memory is short.

        Keys and values, slots, lease, penalty counts and planned steps follow; results of steps that were planned
        before are dropped. Then `append` each token, and `extend`.
        """
        row, table, page, base = running.row, self.table, self._cache.page_size, running.request.base_length
        kept, held, allocated = running.total - num_dropped, running.leased, int(table.allocated[row])
        computed = min(running.applied, kept, kept + num_new - 1)  # what draws next must be read once more
        lease, place, goes_back = running.lease, 0, self.states is not None and computed < running.scheduled
        if self.states is not None and goes_back:
            computed, place = self.states.rewind(running, computed)
        if computed < held:
            lease = self._cache.shorten(lease, table.tokens[row, base:computed])
        leased = base + lease.length
        given_back = held - leased  # the tree's slots, which this request will write no more
        needed = kept + num_new
        if computed == needed - 1:
            needed -= 1  # one token that is read next, as after a draw: make_room finds its slot
        num_pages = max(-(-(needed - base) // page) - (allocated - base) // page, 0) + given_back // page
        slots = self._cache.allocate(num_pages)
        if slots is None:
            if lease is not running.lease:
                self._cache.release(lease)
            return False
        table.slots[row, leased:held] = slots[:given_back]
        table.slots[row, allocated : allocated + len(slots) - given_back] = slots[given_back:]
        table.allocated[row] = allocated + len(slots) - given_back
        if lease is not running.lease:
            self.left.add(Left(int(table.last_steps[row]), NO_SLOTS, running.lease))
            running.lease, computed = lease, min(computed, leased)
        if self.states is not None and goes_back:
            self.states.rewound(running, kept, computed, place)
        if num_dropped or table.planned_totals[row] > kept:
            running.next_hidden = min(running.next_hidden, kept, running.applied)
            table.totals[row] = table.planned_totals[row] = kept
            table.scheduled[row] = table.applied[row] = computed
            table.epochs[row] += 1
            running.request.epoch += 1
        return True

    def append(self, running: RunningRequest, token: int) -> None:
        """One more known token, which no step draws. `replace` has found its slot."""
        table, row = self.table, running.row
        table.tokens[row, table.totals[row]] = token
        table.totals[row] += 1
        table.planned_totals[row] = table.totals[row]

    def extend(self, running: RunningRequest) -> None:
        """Plan all known tokens: those that were appended have been seen by nobody."""
        if running.uid in self._prefilling or running.total - running.scheduled > 1:  # one token: as after a draw
            running.target = running.total
            if running.uid not in self._prefilling:
                self._extending[running.uid] = running
        self._decoding = None
        slot = int(self.table.penalty_slots[running.row])
        if slot:
            self._reset_penalties(running.request, slot, running.output.copy())

    def take_back(self, running: RunningRequest) -> None:
        """Its last token should not have been drawn: the one before it is read once more."""
        table, row = self.table, running.row
        if self.replace(running, 1, 0):
            self.extend(running)
        else:
            table.totals[row] -= 1
            table.planned_totals[row] = table.totals[row]
            self.retract_next(running)
        self.forget_memory(running)

    def drop_planned(self, running: RunningRequest) -> None:
        """What steps in flight draw for it is dropped, and drawn once more when it is planned again."""
        table, row = self.table, running.row
        if table.planned_totals[row] == table.totals[row]:
            return
        if self.replace(running, 0, 0):
            self.extend(running)
        else:
            self.drop_results(running)
            table.planned_totals[row] = table.totals[row]
            self.retract_next(running)

    def end_healing(self, running: RunningRequest) -> None:
        """From here on its output is as any other."""
        self._num_serial -= self._is_serial(running)
        self.table.flags[running.row] &= ~RowFlag.HEALING
        self.table.num_healed[running.row] = running.request.num_healed
        self._num_serial += self._is_serial(running)
        self._decoding = None

    def forget_memory(self, running: RunningRequest) -> None:
        """Tokens were taken back that its logit processor may remember."""
        if running.request.spec.processor is not None:
            self.commands.append(Forget(running.uid))

    def end(self, running: RunningRequest, *, publish: bool = True) -> None:
        """Give everything back. `publish` False: what it computed must not be shared (it is not sound)."""
        if publish:
            self.publish_all(running)
        self._leave(running)
        if running.request.spec.processor is not None:
            self.commands.append(Forget(running.uid))

    def park(self, running: RunningRequest) -> None:
        """A part is computed: its row is free, its slots stay until its request leaves."""
        self.publish(running)
        part, row = part_of(running.request), running.row
        part.lease, part.slots = running.lease, running.slots[part.own : running.total].copy()
        part.pages = running.slots[running.leased :].copy()
        self.parts.parked_tokens += len(part.pages)
        del self.parts.running[running.uid]
        self._vacate(running)
        self.left.add(Left(int(self.table.last_steps[row]), NO_SLOTS, None, row))

    def _leave(self, running: RunningRequest) -> None:
        self._forget(running)
        self._leave_all(running)
        if running.uid in self.parts.assemblies:
            self._take_down(self.parts.assemblies.pop(running.uid))

    def _leave_all(self, running: RunningRequest) -> None:
        """Of a request or part that has left."""
        row, table = running.row, self.table
        if self.states is not None:
            self.states.leave(running)
        own = table.slots[row, running.leased : int(table.allocated[row])].copy()
        self.left.add(Left(int(table.last_steps[row]), own, running.lease, row, int(table.penalty_slots[row])))

    def _take_down(self, assembly: Assembly) -> None:
        """Its request leaves, and with it what was computed for it apart."""
        for part in dict.fromkeys(assembly.parts):
            running = self.parts.running.pop(part.uid, None)
            if running is not None:
                self.publish(running)
                self._vacate(running)
                self._leave_all(running)
            elif part.lease is not None:
                self.parts.parked_tokens -= len(part.pages)
                self.left.add(Left(self.left.planned, part.pages, part.lease))

    def drop_results(self, running: RunningRequest) -> None:
        """Of steps that were planned with it."""
        self.table.epochs[running.row] += 1
        running.request.epoch += 1

    def retract(self, running: RunningRequest) -> Request:
        """While no step is in flight."""
        running.request.num_retractions += 1
        self.num_retractions += 1
        return self._take_back(running, is_long=running.request.is_long)

    def _take_back(self, running: RunningRequest, *, is_long: bool) -> Request:
        """Back to waiting, with every token it has. What it computed stays cached for as long as memory lets it."""
        request = running.request
        if request.healing is None:
            request.tokens = running.tokens.copy()
        else:
            request.healing.restart()
        request.epoch += 1
        self.publish_all(running)
        self._leave(running)
        request.base, request.is_long = None, is_long
        return request

    def _victim(self) -> RunningRequest:
        """The lowest priority, with the fewest output tokens, the latest arrival: in this order."""
        return min(self._running.values(), key=_standing)

    def _vacate(self, running: RunningRequest) -> None:
        self.table.uids[running.row] = 0
        self._by_row[running.row] = None
        self._slot_updates.pop(running.row, None)
        self._prefilling.pop(running.uid, None)

    def _forget(self, running: RunningRequest) -> None:
        self._vacate(running)
        self._extending.pop(running.uid, None)
        self.held.pop(running.uid, None)
        self._num_serial -= self._is_serial(running)
        del self._running[running.uid]
        self._decoding = self._admitted = None

    def _without_slot(self) -> Ints:
        """Rows that decode next and have no slot for the token they read."""
        rows = self.decoding
        return rows[self.table.allocated[rows] <= self.table.scheduled[rows]]

    def _append_pages(self, rows: Ints, slots: Ints) -> None:
        """One fresh page for each row. slots [len(rows) * page_size]"""
        page, table = self._cache.page_size, self.table
        at = table.allocated[rows]
        table.slots[rows[:, None], at[:, None] + np.arange(page)] = slots.reshape(len(rows), page)
        table.allocated[rows] = at + page

    def _grow(self, running: RunningRequest, num_tokens: int) -> bool:
        """Slots for the first `num_tokens` tokens; False (and nothing taken) if even eviction does not give them."""
        row, page, base = running.row, self._cache.page_size, running.request.base_length
        held = int(self.table.allocated[row])
        slots = self._cache.allocate(-(-(num_tokens - base) // page) - (held - base) // page)
        if slots is None:
            return False
        self.table.slots[row, held : held + len(slots)] = slots
        self.table.allocated[row] = held + len(slots)
        return True

    # -- what steps are made of -------------------------------------------------------------------------------------

    def advance(self, number: int, rows: Ints, num_new: Ints, drawing: Ints) -> None:
        """Step `number` was planned: each of `rows` computes `num_new` tokens, and the rows `drawing` draw one."""
        table = self.table
        table.scheduled[rows] += num_new
        table.planned_totals[drawing] += 1
        table.last_steps[rows] = self.left.planned = number
        for running in self.prefilling:
            if not running.prefilling:
                self._prefilling.pop(running.uid, None)
                self._extending.pop(running.uid, None)
                self._decoding = None

    def take_commands(self) -> tuple[Command, ...]:
        """What the runner does before the next step."""
        commands, self.commands = self.commands, []
        if self.adapters.placements:
            commands += self.adapters.take_placements()
        for source, target in self._cache.take_copies():
            commands.append(SlotCopy(source, target))
        if self.states is not None:
            commands += self.states.take_copies()
        for row, (start, stop) in self._slot_updates.items():
            commands.append(SlotUpdate(row, start, self.table.slots[row, start:stop].copy()))
        self._slot_updates.clear()
        return tuple(commands)

    def _reset_penalties(self, request: Request, slot: int, output: Ints) -> None:
        prompt = request.prompt if self._prompt_is_seen else NO_SLOTS
        self.commands.append(PenaltyReset(slot, output, prompt))

    def _is_serial(self, running: RunningRequest) -> bool:
        return bool(self.table.flags[running.row] & RowFlag.SERIAL)


def _standing(running: RunningRequest) -> tuple[int, int, float, int]:
    priority, arrival_s, uid = running.request.rank
    return -priority, running.num_output, -arrival_s, -uid
