"""What runs, and what is kept, for prompts with parallel contexts: their parts, and the rows of these.

Knows which memory they have, and gives none: that is the running set's.
"""

from collections.abc import Iterator

from ramet.ipc.message import Uid
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.prefix import Lease, RowAllocator
from ramet.runtime.engine.batch import PART_ROWS
from ramet.runtime.scheduler.features.assembly import Assembly
from ramet.runtime.scheduler.features.contexts import Part
from ramet.runtime.scheduler.rows import RowTable, RunningRequest


class Parts:
    def __init__(self, table: RowTable, first_row: int) -> None:
        self.rows = RowAllocator(PART_ROWS, first=first_row)
        self.running: dict[Uid, RunningRequest] = {}
        self.assemblies: dict[Uid, Assembly] = {}  # of running requests with contexts, until they leave
        self.parked_tokens = 0  # in the slots of parked parts that the tree has not
        self._table = table

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
        own = sum(int(self._table.allocated[each.row]) - each.leased for each in self.running.values())
        return own + self.parked_tokens

    def promised_tokens(self, page_size: int) -> int:
        """What running requests will need at most for their contexts and what follows, beyond what they have."""
        return sum(assembly.promised(page_size) for assembly in self.assemblies.values())
