"""What runs, and what is kept, for prompts with parallel contexts: their parts, the rows of these and their memory."""

from collections.abc import Iterator, Sequence

from ramet.ipc.message import Uid
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.prefix import NO_SLOTS, Lease
from ramet.runtime.engine.extras import Command
from ramet.runtime.scheduler.feature import RowFeature
from ramet.runtime.scheduler.features.assembly import Assembly
from ramet.runtime.scheduler.features.contexts import Part, RequestContexts
from ramet.runtime.scheduler.features.position_offsets import shift_row
from ramet.runtime.scheduler.features.returned import plan_all
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.running import RunningSet


class Parts(RowFeature):
    flag = RowFlag.CONTEXTS

    def __init__(self, running: RunningSet) -> None:
        self._set, self.memory, self._table = running, running.memory, running.table
        self._deferred = running.memory.deferred
        self.rows = running.spare_rows
        self.running: dict[Uid, RunningRequest] = {}
        self.assemblies: dict[Uid, Assembly] = {}  # of running requests with contexts, until they leave
        self.parked_tokens = 0  # in the slots of parked parts that the tree has not

    @property
    def open(self) -> list[Assembly]:
        """Of requests that have no slots yet, because their contexts are being computed."""
        return [assembly for assembly in self.assemblies.values() if assembly.is_open]

    @property
    def parked(self) -> Iterator[Part]:
        """What is computed and still needed; parts that are not computed have nothing yet."""
        for assembly in self.assemblies.values():
            yield from dict.fromkeys(assembly.parts)

    @property
    def parked_pages(self) -> list[Ints]:
        """Slots that the tree has not. Slow: for tests."""
        return [part.pages for part in self.parked]

    @property
    def leases(self) -> list[Lease]:
        running = [each.lease for each in self.running.values()]
        return running + [part.lease for part in self.parked if part.lease is not None]

    @property
    def owned_tokens(self) -> int:
        """Slots that belong to parts and not to the tree."""
        return sum(map(self.memory.owned_tokens, self.running.values())) + self.parked_tokens

    def promised_tokens(self, page_size: int) -> int:
        """What running requests will need at most for their contexts and what follows, beyond what they have."""
        return sum(assembly.promised(page_size) for assembly in self.assemblies.values())

    # -- their life -------------------------------------------------------------------------------------------------

    def begin(self, running: RunningRequest) -> Sequence[Command]:
        """A request runs whose prompt has contexts; its lease says the namespace."""
        cache = self.memory.cache
        assembly = Assembly(running, running.lease.namespace, cached=cache.enabled, copies=cache.copies)
        self.assemblies[running.uid] = assembly
        return ()

    def put_back(self, running: RunningRequest) -> None:
        self.end(running)

    def take(self, request: Request, lease: Lease, slots: Ints) -> bool:
        """Compute a part, whose first `slots` [n] are there; False: memory is short. A row of parts must be free."""
        running = RunningRequest(request, self.rows.allocate(), lease, self._table)
        base = running.request.own[Part].base
        running.base_length = base.length
        self._table.open(running.row, request, len(slots))
        if not self.memory.occupy(running, slots):
            self._set.vacate(running)
            self.rows.free(running.row)
            return False
        for feature in self._set.features_of(running.row):
            self.memory.commands += feature.begin(running)
        shift_row(running, base.shift)
        self.running[request.uid] = running
        self._set.prefill(running)
        return True

    def take_rest(self, running: RunningRequest, lease: Lease, slots: Ints) -> bool:
        """Compute what follows the contexts of a request, whose base is set: as `take`, in its own row."""
        base, nothing = running.request.own[RequestContexts].base, running.lease
        assert base is not None, running.uid
        running.lease, running.base_length = lease, base.length
        self._table.begin(running.row, len(slots))
        if not self.memory.occupy(running, slots):
            running.lease, running.base_length = nothing, 0
            self._table.begin(running.row, 0)
            return False
        shift_row(running, base.shift)
        plan_all(running.request)
        self._set.prefill(running)
        return True

    def park(self, running: RunningRequest) -> None:
        """A part is computed: its row is free, its slots stay until its request leaves."""
        self.memory.publish(running)
        part, row = running.request.own[Part], running.row
        part.lease, part.slots = running.lease, running.slots[part.own : running.total].copy()
        part.pages = running.slots[running.leased :].copy()
        self.parked_tokens += len(part.pages)
        del self.running[running.uid]
        self._set.vacate(running)
        self._deferred.add(int(self._table.last_steps[row]), NO_SLOTS, None, row)

    def end(self, running: RunningRequest) -> Sequence[Command]:
        """A request has left, and with it goes what was computed for it apart."""
        assembly = self.assemblies.pop(running.uid)
        running.request.own[RequestContexts].base = None
        for part in dict.fromkeys(assembly.parts):
            computing = self.running.pop(part.uid, None)
            if computing is not None:
                self.memory.publish(computing)
                self._set.vacate(computing)
                self.memory.leave(computing)
            elif part.lease is not None:
                self.parked_tokens -= len(part.pages)
                self._deferred.add(self._deferred.planned, part.pages, part.lease)
        return ()
