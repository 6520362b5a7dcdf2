"""The running requests as columns: one entry for each row of the slot table, so that a step costs what changes.

Decides what a row's next step is made of. Knows no request object, no cache and no device. M rows, L context length
rounded up to pages; row 0 is padding and belongs to nobody.

    tokens[row]   [0, total)  known           [total, planned_total)  drawn by steps whose result is still to come
    slots[row]    [0, applied)  computed      [applied, scheduled)  being computed      [scheduled, allocated)  taken
"""

import numpy as np

from ramet.runtime.arrays import Ints
from ramet.runtime.request import Request

LEAST_REPETITION = 1e-6  # a repetition_penalty of 0 divides by this
HOTTEST = 1e30  # every token is as likely as any other long before; beyond float32's largest a banned one is NaN


class RowFlag:
    """Bits of RowTable.flags: what a row asks beyond columns, so that its request is looked at step by step."""

    STOP_CHECK = 1  # stop ids, strings or patterns of its own
    BIAS = 2
    LOGPROBS = 4
    HIDDEN = 8
    PROCESSOR = 16  # sees its output: it cannot be planned before its last token is known
    IGNORE_EOS = 32


class RowTable:
    """Columns [M] unless said otherwise; the tokens and slots are [M, L]. Pages that nobody wrote take no memory."""

    def __init__(self, max_running: int, context_length: int, page_size: int) -> None:
        num = max_running + 1
        width = -(-context_length // page_size) * page_size
        self.tokens: Ints = np.empty((num, width), dtype=np.int32)
        self.slots: Ints = np.empty((num, width), dtype=np.int32)
        # (uid, epoch) is the key that results carry; uid 0: the row runs nothing
        self.uids, self.epochs = np.zeros(num, np.int64), np.zeros(num, np.int64)
        self.prompt_lens, self.limits = np.zeros(num, np.int32), np.zeros(num, np.int32)
        self.totals, self.planned_totals = np.zeros(num, np.int32), np.zeros(num, np.int32)
        self.scheduled, self.applied = np.zeros(num, np.int32), np.zeros(num, np.int32)
        self.allocated = np.zeros(num, np.int32)
        self.last_steps = np.zeros(num, np.int64)  # number of the last step that has this row
        self.flags = np.zeros(num, np.uint8)  # of RowFlag
        # how it samples
        self.temperature, self.top_p = np.zeros(num, np.float32), np.ones(num, np.float32)
        self.top_k, self.min_p = np.zeros(num, np.int64), np.zeros(num, np.float32)
        self.seeds = np.zeros(num, np.uint64)
        self.min_new = np.zeros(num, np.int32)
        self.penalty_slots = np.zeros(num, np.int32)  # 0: no penalties
        self.frequency, self.presence = np.zeros(num, np.float32), np.zeros(num, np.float32)
        self.repetition = np.ones(num, np.float32)

    def open(self, row: int, request: Request, num_cached: int, penalty_slot: int) -> None:
        """A request begins to run in `row`, its first `num_cached` tokens computed. Its slots are the caller's."""
        known = len(request.tokens)
        self.tokens[row, :known] = request.tokens
        self.uids[row], self.epochs[row] = request.uid, request.epoch
        self.prompt_lens[row], self.limits[row] = request.prompt_len, request.limit
        self.totals[row] = self.planned_totals[row] = known
        self.scheduled[row] = self.applied[row] = self.allocated[row] = num_cached
        self.last_steps[row] = 0
        self._set_sampling(row, request, penalty_slot)

    def _set_sampling(self, row: int, request: Request, penalty_slot: int) -> None:
        params = request.params
        self.temperature[row] = 0.0 if params.greedy else min(params.temperature, HOTTEST)
        self.top_k[row], self.top_p[row], self.min_p[row] = max(params.top_k, 0), params.top_p, params.min_p
        self.seeds[row], self.min_new[row] = request.seed, params.min_new_tokens
        self.penalty_slots[row] = penalty_slot
        self.frequency[row], self.presence[row] = params.frequency_penalty, params.presence_penalty
        self.repetition[row] = max(params.repetition_penalty, LEAST_REPETITION)
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
    }
    return sum(flag for flag, is_set in asked.items() if is_set)
