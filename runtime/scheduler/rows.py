"""The running requests as columns: one entry for each row of the slot table, so that a step costs what changes.

M rows, L context length rounded up to pages; row 0 is padding and belongs to no request. A RunningRequest is what a
running request has and a waiting one has not: row, slots, room for its output. Knows no tree and no device.

    tokens[row]   [0, total)  known           [total, planned_total)  drawn by steps whose result is still to come
    slots[row]    [0, applied)  computed      [applied, scheduled)  being computed      [scheduled, allocated)  taken
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np

from ramet.kernels import draw_params
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.prefix import Lease
from ramet.runtime.engine.batch import PART_ROWS
from ramet.runtime.errors import ConfigError
from ramet.runtime.sampling.columns import write_draw_params
from ramet.runtime.scheduler.request import Request

Columns = TypeVar("Columns")


class RowTable:
    """Columns [M] unless said otherwise; the tokens and slots are [M, L]. Unwritten pages take no memory."""

    def __init__(self, max_running: int, context_length: int, page_size: int) -> None:
        num = max_running + PART_ROWS + 1
        width = -(-context_length // page_size) * page_size
        try:
            self.tokens: Ints = np.empty((num, width), dtype=np.int32)
            self.slots: Ints = np.empty((num, width), dtype=np.int32)
        except MemoryError:  # of addresses: see above
            fact = f"no room for {num} rows of {width} tokens: lower --max-running-requests or --context-length"
            raise ConfigError(fact) from None
        # (uid, epoch) is the key that results carry; uid 0: the row runs nothing
        self.uids, self.epochs = np.zeros(num, np.int64), np.zeros(num, np.int64)
        self.arrivals = np.zeros(num, np.float64)  # what came in one client's request has the same
        self.prompt_lens, self.limits = np.zeros(num, np.int32), np.zeros(num, np.int32)
        self.totals, self.planned_totals = np.zeros(num, np.int32), np.zeros(num, np.int32)
        self.scheduled, self.applied = np.zeros(num, np.int32), np.zeros(num, np.int32)
        self.allocated = np.zeros(num, np.int32)
        self.until = np.zeros(num, np.int32)  # tokens after which no further one is planned
        self.last_steps = np.zeros(num, np.int64)  # number of the last step that has this row
        self.flags = np.zeros(num, np.int32)  # of RowFlag
        self.draw_params = draw_params.neutral(num)  # how it samples
        self._own: dict[Callable[[int], object], object] = {}  # columns of features, by their kind

    def own(self, kind: Callable[[int], Columns]) -> Columns:
        """The columns that a feature keeps, of the class `kind`: made for all rows when they are first asked for."""
        if kind not in self._own:
            self._own[kind] = kind(len(self.uids))
        return cast(Columns, self._own[kind])

    def open(self, row: int, request: Request, num_cached: int) -> None:
        """A request begins to run in `row`, its first `num_cached` tokens computed. Its slots are the caller's."""
        known = len(request.tokens)
        self.tokens[row, :known] = request.tokens
        self.uids[row], self.epochs[row], self.arrivals[row] = request.uid, request.epoch, request.arrival_s
        self.prompt_lens[row], self.limits[row] = request.prompt_len, request.limit
        self.totals[row] = self.planned_totals[row] = known
        self.until[row] = self.limits[row]
        self.last_steps[row], self.flags[row] = 0, request.flags
        write_draw_params(self.draw_params, row, request.params, request.seed)
        self.begin(row, num_cached)

    def begin(self, row: int, num_cached: int) -> None:
        """Its first `num_cached` tokens are computed."""
        self.scheduled[row] = self.applied[row] = self.allocated[row] = num_cached


class RunningRequest:
    """A request in its row. Slots [0, leased) belong to others and the tree, [leased, allocated) to this request.

    The first `base_length` of them are others': what is computed after these tokens is cached without them.
    """

    __slots__ = ("base_length", "lease", "request", "row", "table", "target", "uid")

    def __init__(self, request: Request, row: int, lease: Lease, table: RowTable) -> None:
        self.request, self.row, self.lease, self.table = request, row, lease, table
        self.uid = request.uid
        self.base_length = 0
        self.target = len(request.tokens)  # until so many tokens are scheduled it prefills, after that it decodes

    @property
    def scheduled(self) -> int:
        """Tokens that are computed once every planned step has run."""
        return int(self.table.scheduled[self.row])

    @property
    def applied(self) -> int:
        """Tokens whose keys and values results have confirmed."""
        return int(self.table.applied[self.row])

    @property
    def total(self) -> int:
        """Tokens that are known."""
        return int(self.table.totals[self.row])

    @property
    def num_output(self) -> int:
        return self.total - self.request.prompt_len

    @property
    def remaining(self) -> int:
        """New tokens it may still get."""
        return self.request.limit - self.total

    @property
    def tokens(self) -> Ints:
        """Those that are known: a view."""
        return self.table.tokens[self.row, : self.total]

    @property
    def output(self) -> Ints:
        """A view."""
        return self.table.tokens[self.row, self.request.prompt_len : self.total]

    @property
    def slots(self) -> Ints:
        """Those that are allocated: a view."""
        return self.table.slots[self.row, : int(self.table.allocated[self.row])]

    @property
    def leased(self) -> int:
        """Tokens whose slots are not its own."""
        return self.base_length + self.lease.length

    @property
    def prefilling(self) -> bool:
        return self.scheduled < self.target

    def append(self, token: int) -> None:
        """One more known token, which no step draws. `RewrittenRows.replace` has found its slot."""
        table, row = self.table, self.row
        table.tokens[row, table.totals[row]] = token
        table.totals[row] += 1
        table.planned_totals[row] = table.totals[row]

    def drop_results(self) -> None:
        """Forget what steps that were planned with it will say."""
        self.table.epochs[self.row] += 1
        self.request.epoch += 1
