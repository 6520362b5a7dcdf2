"""The running requests as columns: one entry for each row of the slot table, so that a step costs what changes.

M rows, L context length rounded up to pages; row 0 is padding and belongs to no request. A RunningRequest is what a
running request has and a waiting one has not: row, slots, room for its output. Knows no tree and no device.

    tokens[row]   [0, total)  known           [total, planned_total)  drawn by steps whose result is still to come
    slots[row]    [0, applied)  computed      [applied, scheduled)  being computed      [scheduled, allocated)  taken
"""

import numpy as np

from ramet.ipc.message import Uid
from ramet.kernels import draw_params
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.prefix import Lease
from ramet.runtime.engine.batch import PART_ROWS
from ramet.runtime.errors import ConfigError
from ramet.runtime.sampling.columns import MIN_REPETITION, write_draw_params
from ramet.runtime.scheduler.request import Request

NEVER = np.iinfo(np.int32).max


class RowFlag:
    """Bits of RowTable.flags: what a row asks beyond columns, so that its request is looked at step by step."""

    STOP_CHECK = 1 << 0  # stop ids, strings or patterns of its own
    BIAS = 1 << 1
    LOGPROBS = 1 << 2
    HIDDEN = 1 << 3
    PROCESSOR = 1 << 4  # sees its output: it cannot be planned before its last token is known
    IGNORE_EOS = 1 << 5
    CONSTRAINED = 1 << 6  # draws what a grammar allows
    JUMPS = 1 << 7  # what follows its next token may not be drawn: it cannot be planned before that token is known
    HEALING = 1 << 8  # the end of its prompt is chosen again: its next token may be taken back
    PATTERNS = 1 << 9  # stop patterns of its own: they may take long
    FILTERED = 1 << 10  # leaves tokens out by a filter (runtime/sampling/filters.py)
    ADAPTER = 1 << 11
    EMBEDS = 1 << 12
    MEDIA = 1 << 13
    PENALTIES = 1 << 14
    MIN_NEW = 1 << 15  # its output has a least length
    SHIFTED = 1 << 16  # its tokens are at other positions to the model than their indices
    CHANGES = PROCESSOR | MIN_NEW  # samples in another way from step to step
    SERIAL = PROCESSOR | JUMPS | HEALING
    MASKED = CONSTRAINED | HEALING
    TOLD_LATE = MASKED | PATTERNS  # its token is told when more is known than that it was drawn


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
        self.shifts = np.zeros(num, np.int32)  # a token's index less its position to the model
        self.ends = np.full(num, NEVER, np.int32)  # tokens beyond which what is computed in this row is good no more
        self.adapters = np.zeros(num, np.int32)  # slot of its adapter; 0: none
        self.last_steps = np.zeros(num, np.int64)  # number of the last step that has this row
        self.flags = np.zeros(num, np.int32)  # of RowFlag
        # how it samples
        self.draw_params = draw_params.neutral(num)
        self.min_new = np.zeros(num, np.int32)
        self.num_healed = np.zeros(num, np.int32)  # tokens of the output that only spell the end of its prompt
        self.penalty_slots = np.zeros(num, np.int32)  # 0: no penalties
        self.frequency, self.presence = np.zeros(num, np.float32), np.zeros(num, np.float32)
        self.repetition = np.ones(num, np.float32)

    def open(self, row: int, request: Request, num_cached: int) -> None:
        """A request begins to run in `row`, its first `num_cached` tokens computed. Its slots are the caller's."""
        known = len(request.tokens)
        self.tokens[row, :known] = request.tokens
        self.uids[row], self.epochs[row], self.arrivals[row] = request.uid, request.epoch, request.arrival_s
        self.prompt_lens[row], self.limits[row] = request.prompt_len, request.limit
        self.totals[row] = self.planned_totals[row] = known
        self.adapters[row] = request.adapter_slot
        self.last_steps[row] = 0
        self._set_sampling(row, request)
        self.begin(row, request, num_cached)

    def begin(self, row: int, request: Request, num_cached: int) -> None:
        """Its first `num_cached` tokens are computed."""
        self.scheduled[row] = self.applied[row] = self.allocated[row] = num_cached
        self.shifts[row] = 0 if request.base is None else request.base.shift
        self.ends[row] = NEVER
        if request.boundary is not None and request.is_long:
            self.shifts[row] = -request.boundary
        elif request.boundary is not None:
            self.ends[row] = request.boundary
        if request.turns is not None:
            self.shifts[row] = request.turns.shift
        self.flags[row] &= ~RowFlag.SHIFTED
        if self.shifts[row]:
            self.flags[row] |= RowFlag.SHIFTED

    def _set_sampling(self, row: int, request: Request) -> None:
        params = request.params
        write_draw_params(self.draw_params, row, params, request.seed)
        self.min_new[row], self.num_healed[row] = params.min_new_tokens, request.num_healed
        self.penalty_slots[row] = 0
        self.frequency[row], self.presence[row] = params.frequency_penalty, params.presence_penalty
        self.repetition[row] = max(params.repetition_penalty, MIN_REPETITION)
        self.flags[row] = _flags_of(request)


def _flags_of(request: Request) -> int:
    spec, params = request.spec, request.params
    asked = {
        RowFlag.STOP_CHECK: bool(params.stop or params.stop_regex or params.stop_token_ids),
        RowFlag.BIAS: bool(params.logit_bias),
        RowFlag.LOGPROBS: spec.logprobs is not None,
        RowFlag.HIDDEN: spec.hidden is not None,
        RowFlag.PROCESSOR: spec.processor is not None,
        RowFlag.IGNORE_EOS: params.ignore_eos,
        RowFlag.CONSTRAINED: request.constrained is not None,
        RowFlag.JUMPS: request.constrained is not None and request.constrained.output.jumps,
        RowFlag.HEALING: request.healing is not None,
        RowFlag.PATTERNS: bool(params.stop_regex),
        RowFlag.FILTERED: bool(params.filters),
        RowFlag.ADAPTER: request.adapter_slot > 0,
        RowFlag.EMBEDS: request.embeds is not None,
        RowFlag.MEDIA: request.media is not None,
        RowFlag.PENALTIES: params.penalised,
        RowFlag.MIN_NEW: params.min_new_tokens > 0,
    }
    return sum(flag for flag, is_set in asked.items() if is_set)


class RunningRequest:
    """A request in its row. Slots [0, leased) belong to its base and the tree, [leased, allocated) to this request."""

    __slots__ = ("_table", "lease", "next_hidden", "next_logprob", "request", "row", "target")

    def __init__(self, request: Request, row: int, lease: Lease, table: RowTable) -> None:
        self.request, self.row, self.lease, self._table = request, row, lease, table
        self.target = len(request.tokens)  # until so many tokens are scheduled it prefills, after that it decodes
        self.next_logprob, self.next_hidden = request.next_logprob, request.next_hidden  # of planned steps

    @property
    def uid(self) -> Uid:
        return self.request.uid

    @property
    def scheduled(self) -> int:
        """Tokens that are computed once every planned step has run."""
        return int(self._table.scheduled[self.row])

    @property
    def applied(self) -> int:
        """Tokens whose keys and values results have confirmed."""
        return int(self._table.applied[self.row])

    @property
    def total(self) -> int:
        """Tokens that are known."""
        return int(self._table.totals[self.row])

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
        return self._table.tokens[self.row, : self.total]

    @property
    def output(self) -> Ints:
        """A view."""
        return self._table.tokens[self.row, self.request.prompt_len : self.total]

    @property
    def slots(self) -> Ints:
        """Those that are allocated: a view."""
        return self._table.slots[self.row, : int(self._table.allocated[self.row])]

    @property
    def leased(self) -> int:
        """Tokens whose slots are not its own."""
        return self.request.base_length + self.lease.length

    @property
    def prefilling(self) -> bool:
        return self.scheduled < self.target

    def append(self, token: int) -> None:
        """One more known token, which no step draws. `RowMemory.replace` has found its slot."""
        table, row = self._table, self.row
        table.tokens[row, table.totals[row]] = token
        table.totals[row] += 1
        table.planned_totals[row] = table.totals[row]

    def drop_results(self) -> None:
        """Forget what steps that were planned with it will say."""
        self._table.epochs[self.row] += 1
        self.request.epoch += 1

    @property
    def returns_logprobs(self) -> bool:
        return bool(self._table.flags[self.row] & RowFlag.LOGPROBS)

    @property
    def returns_prompt(self) -> bool:
        """Something is returned of each prompt token that is yet to be computed, or of some of them."""
        return self.next_logprob is not None or self.request.returns_states
