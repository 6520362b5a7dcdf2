"""The running requests: who runs in which row, who prefills, who decodes, and who is in no step for now.

Knows the rows and, through RowMemory, what each has; not the policy and not the device. What some rows ask beyond
tokens is done by each RowFeature whose bit they have (RowFlag).
"""

from collections.abc import Callable, Iterator, Sequence
from enum import Flag, auto

import numpy as np

from ramet.ipc.message import Uid
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.node import Namespace
from ramet.runtime.cache.prefix import NO_SLOTS, Lease, RowAllocator
from ramet.runtime.engine.batch import PART_ROWS
from ramet.runtime.scheduler.feature import RowFeature, RowFeatures
from ramet.runtime.scheduler.memory import RowMemory
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest


class Hold(Flag):
    """Why a request is in no step."""

    ASIDE = auto()  # it is not known what it may draw
    SLOW = auto()  # it has taken more than its share of the thread
    LATE = auto()  # what its last tokens lead to is done in a later turn


class RunningSet:
    """Every running request, in the order they were admitted."""

    def __init__(self, memory: RowMemory, rows: RowAllocator, give_way: Callable[[bool], bool]) -> None:
        """`give_way` ends something that is kept for a client, if that gives memory; False: there is nothing. Its
        argument: no request can be retracted, so leases that clients have asked for end as well.
        """
        self.memory, self.table, self.give_way = memory, memory.table, give_way
        self.memory.deferred.free_row = self._free_row
        self.free_rows, self.spare_rows = rows, RowAllocator(PART_ROWS, first=rows.num_rows + 1)
        self.beside = RowFeatures()
        self._running: dict[Uid, RunningRequest] = {}
        self._by_row: list[RunningRequest | None] = [None] * len(self.table.uids)
        self._prefilling: dict[Uid, RunningRequest] = {}
        self._extending: dict[Uid, RunningRequest] = {}  # their outputs have tokens that nobody drew
        self._decoding: Ints | None = None  # rows; None: look again
        self._admitted: Ints | None = None  # all rows; None: look again
        self.held: dict[Uid, Hold] = {}  # requests that are in no step for now
        self.slotless: set[Uid] = set()  # requests that have no slots until what comes before is computed
        self._num_serial = 0  # running requests that are planned only when their last token is known
        self.stuck: list[RunningRequest] = []  # memory is short for them: they are retracted before the next step
        self.num_retractions = 0

    def __len__(self) -> int:
        return len(self._running)

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
            waits = self._prefilling.keys() | self._extending.keys() | self.held.keys() | self.slotless
            decoding = [each.row for each in self._running.values() if each.uid not in waits]
            self._decoding = np.array(decoding, dtype=np.int32)
        rows, table = self._decoding, self.table
        planned = table.planned_totals[rows]
        able = planned < table.until[rows]
        if self._num_serial:  # the token that is being drawn must come first
            able &= (planned == table.totals[rows]) | ((table.flags[rows] & RowFlag.SERIAL) == 0)
        return rows if able.all() else rows[able]

    @property
    def num_in_output(self) -> int:
        """Running requests that wait for their next token, and for no prompt."""
        return len(self._running.keys() - self._prefilling.keys() - self.slotless)

    def hold(self, running: RunningRequest, why: Hold) -> None:
        """Keep a request out of all steps until `release`; after that, it joins a step once its last token is known."""
        self.held[running.uid] = self.held.get(running.uid, Hold(0)) | why
        self._set_flags(running, int(self.table.flags[running.row]) | RowFlag.JUMPS)

    def clear_flag(self, running: RunningRequest, flag: int) -> None:
        """From here on its output is as one that never had this bit."""
        running.request.flags &= ~flag
        self._set_flags(running, int(self.table.flags[running.row]) & ~flag)

    def _set_flags(self, running: RunningRequest, flags: int) -> None:
        self._num_serial -= self._is_serial(running)
        self.table.flags[running.row] = flags
        self._num_serial += self._is_serial(running)
        self._decoding = None

    def release(self, running: RunningRequest, why: Hold) -> None:
        left = self.held.pop(running.uid, Hold(0)) & ~why
        if left:
            self.held[running.uid] = left
        self._decoding = None

    @property
    def owned_tokens(self) -> int:
        """Slots that belong to running requests, or to steps in flight, and not to the tree."""
        return sum(map(self.memory.owned_tokens, self._running.values())) + self.memory.deferred.num_tokens

    # -- to run, and to leave ---------------------------------------------------------------------------------------

    def take(self, request: Request, lease: Lease, prefix: Ints) -> RunningRequest | None:
        """Run a request whose cached prefix is leased, with slots for every known token; None if memory is short.

        Memory can be too short only for the first that runs (Admission): it waits for steps in flight, and ends leases
        of clients after that.
        """
        running = self._open(request, lease)
        while not self.memory.occupy(running, prefix):
            if self.memory.deferred.in_flight or not self.give_way(True):
                self.vacate(running)
                self.memory.deferred.add(0, NO_SLOTS, None, running.row)
                return None
        if request.cached_tokens is None:
            request.cached_tokens = lease.length
        if lease.length:
            request.flags |= RowFlag.READS_OTHERS
        self._enter(running)
        self.prefill(running)
        return running

    def take_without_slots(self, request: Request, namespace: Namespace, flag: int) -> RunningRequest:
        """Run a request that has no slots until the feature of the bit `flag` has computed what comes before."""
        running = self._open(request, Lease(0, namespace, None))
        self.table.flags[running.row] |= flag
        self.slotless.add(running.uid)
        self._enter(running)
        request.flags |= RowFlag.READS_OTHERS  # maybe
        return running

    def _open(self, request: Request, lease: Lease) -> RunningRequest:
        running = RunningRequest(request, self.free_rows.allocate(), lease, self.table)
        self.table.open(running.row, request, lease.length)
        return running

    def _enter(self, running: RunningRequest) -> None:
        for feature in self.features_of(running.row):
            self.memory.commands += feature.begin(running)
        self._num_serial += self._is_serial(running)
        self._running[running.uid] = self._by_row[running.row] = running
        self._admitted = None

    def prefill(self, running: RunningRequest) -> None:
        """Its slots are there: steps may compute what it has known when it began to wait."""
        self.slotless.discard(running.uid)
        self._by_row[running.row] = self._prefilling[running.uid] = running

    def end(self, running: RunningRequest, *, publish: bool = True) -> None:
        """Give everything back. `publish` False: what it computed must not be shared (it is not sound)."""
        if publish:
            self.memory.publish_all(running)
        self._leave(running)
        for feature in self.features_of(running.row):
            self.memory.commands += feature.end(running)

    def retract(self, running: RunningRequest) -> Request:
        """Memory is needed for others. While no step is in flight."""
        running.request.num_retractions += 1
        self.num_retractions += 1
        return self.put_back(running)

    def put_back(self, running: RunningRequest) -> Request:
        """Back to waiting, with every token it has. What it computed stays cached for as long as memory lets it."""
        request = running.request
        request.tokens = running.tokens.copy()
        for each in request.own.values():
            each.waits_again(request)
        request.epoch += 1
        self.memory.publish_all(running)
        self._leave(running)
        for feature in self.features_of(running.row):
            feature.put_back(running)
        return request

    def retract_next(self, running: RunningRequest) -> None:
        """It cannot go on, for memory is short: it is retracted before anything else is planned."""
        self.stuck.append(running)

    def _leave(self, running: RunningRequest) -> None:
        self.vacate(running)
        self.slotless.discard(running.uid)
        self._extending.pop(running.uid, None)
        self.held.pop(running.uid, None)
        self._num_serial -= self._is_serial(running)
        del self._running[running.uid]
        self._decoding = self._admitted = None
        self.memory.leave(running)

    def vacate(self, running: RunningRequest) -> None:
        """Its row runs nothing."""
        self.table.uids[running.row] = 0
        self._by_row[running.row] = None
        self._prefilling.pop(running.uid, None)
        self.memory.vacate(running.row)

    def _free_row(self, row: int) -> None:
        """No step in flight has it any more."""
        for feature in self.features_of(row):
            feature.free(self.table, row)
        (self.spare_rows if row > self.free_rows.num_rows else self.free_rows).free(row)

    def features_of(self, row: int) -> Sequence[RowFeature]:
        """The features whose bits a row has."""
        flags = int(self.table.flags[row])
        return self.beside.of(flags) if flags & self.beside.bits else ()

    def extend(self, running: RunningRequest) -> None:
        """Plan all known tokens: those that were appended have been seen by nobody."""
        if running.uid in self._prefilling or running.total - running.scheduled > 1:  # one token: as after a draw
            running.target = running.total
            if running.uid not in self._prefilling:
                self._extending[running.uid] = running
        self._decoding = None

    # -- what steps are made of -------------------------------------------------------------------------------------

    def advance(self, number: int, rows: Ints, num_new: Ints, drawing: Ints) -> None:
        """Step `number` was planned: each of `rows` computes `num_new` tokens, and the rows `drawing` draw one."""
        table = self.table
        table.scheduled[rows] += num_new
        table.planned_totals[drawing] += 1
        table.last_steps[rows] = self.memory.deferred.planned = number
        for running in self.prefilling:
            if not running.prefilling:
                self._prefilling.pop(running.uid, None)
                self._extending.pop(running.uid, None)
                self._decoding = None

    def _is_serial(self, running: RunningRequest) -> bool:
        return bool(self.table.flags[running.row] & RowFlag.SERIAL)
