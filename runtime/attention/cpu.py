"""Attention on the CPU: our kernel for decoding rows and short extends, torch's fused attention for long extends.

Decides which row goes where (without compiled kernels every row is attended in torch, long_extends.py), which rows read
a shared prefix together, and where long rows are cut so that every core has cuts. A slot holds one token of one
position, so two rows with equal slots at a position have equal slots before it: where a common prefix ends is found by
bisection. Only rows with parallel contexts may hold the same slots in another order: these are compared slot by slot.
T new tokens, R rows, H query heads.

    row 1   [0 ......... 1024)[1024 .. 1060)      one item: keys [0, 1024) for the queries of rows 1, 2 and 3
    row 2   [   the same     )[1024 . 1050)       three items: each row's own keys
    row 3   [   the same     )[1024 .... 1070)    then partial results are merged, token by token
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ramet.kernels import reference
from ramet.kernels.cpu.ops import DTYPES, CpuOps, Plan, Rule
from ramet.runtime.arrays import Ints
from ramet.runtime.attention.base import ForwardInputs, LayerAttention
from ramet.runtime.attention.long_extends import LongRow, attend_row
from ramet.runtime.cache.pool import KVPool

MIN_SHARED = 64  # keys of a common prefix below which reading them row by row is as good
MIN_PIECE = 128  # keys below which a cut costs more than an idle core
PIECES_PER_THREAD = 4
MAX_MEMBERS = 32  # queries of one item: beyond, their sums no longer fit the core's cache


@dataclass(frozen=True, slots=True)
class KernelItems:
    """What each call of the kernel does: arrays of int32 in the layout that kernels/cpu/attention.cpp reads."""

    items: Ints  # [I, 5] first member, members, row of the slot table, first key, end of keys
    members: Ints  # [M] token of each member
    partials: Ints  # [M] index of the partial result, -1 where the item is all its member needs
    merges: Ints  # [J, 3] token, first partial, number of partials
    num_partials: int


@dataclass(frozen=True, slots=True)
class Share:
    """Rows (indices into R) whose keys [start, stop) are the same slots."""

    rows: Ints
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Run:
    """Keys [start, stop) of table row `row`, for the queries of `tokens`."""

    tokens: Ints
    row: int
    start: int
    stop: int

    @property
    def cost(self) -> int:
        return (self.stop - self.start) * (3 + len(self.tokens))  # widening a key once costs as much as three queries


def cut(
    table: Ints,
    rows: Ints,
    first_tokens: Ints,
    num_new: Ints,
    seq_lens: Ints,
    threads: int,
    shifts: Ints | None = None,
) -> KernelItems:
    """table [rows, L] slots; the others [R]. Row r owns tokens [first_tokens[r], first_tokens[r] + num_new[r])."""
    shares = find_shares(table, rows, seq_lens - num_new, shifts)
    if not shares and threads == 1 and num_new.max() == 1:
        return _whole_rows(rows, first_tokens, seq_lens)
    own_start = np.zeros(len(rows), dtype=np.int32)
    runs: list[_Run] = []
    for share in shares:
        tokens = _tokens(first_tokens[share.rows], num_new[share.rows])
        for at in range(0, len(tokens), MAX_MEMBERS):
            runs.append(_Run(tokens[at : at + MAX_MEMBERS], int(rows[share.rows[0]]), share.start, share.stop))
        own_start[share.rows] = share.stop
    for row, first, new, start, stop in zip(
        rows.tolist(), first_tokens.tolist(), num_new.tolist(), own_start.tolist(), seq_lens.tolist(), strict=True
    ):
        for at in range(first, first + new, MAX_MEMBERS):
            end = min(at + MAX_MEMBERS, first + new)
            runs.append(_Run(np.arange(at, end, dtype=np.int32), row, start, stop - (first + new - end)))
    return _pieces(runs, threads, bool(shares))


def find_shares(table: Ints, rows: Ints, num_cached: Ints, shifts: Ints | None = None) -> list[Share]:
    """Common prefixes worth reading together, outermost first; only the first num_cached[r] slots of a row count.

    shifts [R]: rows with parallel contexts are those above 0; None: there are none.
    """
    if len(rows) < 2:
        return []
    found: list[Share] = []
    pending = [(np.arange(len(rows), dtype=np.int32), 0)]
    while pending:
        group, start = pending.pop()
        group = group[num_cached[group] >= start + MIN_SHARED]
        for alike in _split_by(table[rows[group], start], group):
            common_end = _common_end if shifts is None or not shifts[alike].any() else _compared_end
            stop = common_end(table, rows[alike], start, int(num_cached[alike].min()))
            if stop - start >= MIN_SHARED:
                found.append(Share(alike, start, stop))
                pending.append((alike, stop))
    return found


def _split_by(keys: Ints, group: Ints) -> list[Ints]:
    """Members of `group` with equal keys, where there are at least two."""
    if len(group) < 2:
        return []
    order = np.argsort(keys, kind="stable")
    ends = np.flatnonzero(np.diff(keys[order])) + 1
    return [part for part in np.split(group[order], ends) if len(part) > 1]


def _common_end(table: Ints, rows: Ints, start: int, limit: int) -> int:
    """The first position in (start, limit] from which on the rows differ; they agree at `start`."""
    low, high = start + 1, limit  # they agree before `low`; the answer is at most `high`
    while low < high:
        middle = (low + high + 1) // 2
        column = table[rows, middle - 1]
        if (column == column[0]).all():
            low = middle
        else:
            high = middle - 1
    return low


def _compared_end(table: Ints, rows: Ints, start: int, limit: int) -> int:
    """As `_common_end`, whatever comes after the first difference."""
    part = table[rows, start:limit]
    differs = (part != part[0]).any(axis=0)
    return start + int(differs.argmax()) if differs.any() else limit


def _tokens(first: Ints, count: Ints) -> Ints:
    return np.concatenate([np.arange(at, at + n, dtype=np.int32) for at, n in zip(first.tolist(), count.tolist())])


def _whole_rows(rows: Ints, first_tokens: Ints, seq_lens: Ints) -> KernelItems:
    """One item a row: decoding on one thread needs no cuts."""
    num = len(rows)
    items = np.empty((num, 5), dtype=np.int32)
    items[:, 0], items[:, 1], items[:, 2], items[:, 3], items[:, 4] = np.arange(num), 1, rows, 0, seq_lens
    none = np.full(num, -1, dtype=np.int32)
    return KernelItems(items, first_tokens.astype(np.int32), none, np.empty((0, 3), dtype=np.int32), 0)


def _pieces(runs: list[_Run], threads: int, shared: bool) -> KernelItems:
    total = sum(run.cost for run in runs)
    largest = total if threads == 1 else max(1, total // (threads * PIECES_PER_THREAD))
    items: list[tuple[int, int, int, int, int]] = []
    tokens: list[Ints] = []
    num_members = 0
    for run in runs:
        keys = run.stop - run.start
        num = max(1, min(-(-run.cost // largest), keys // MIN_PIECE))
        bounds = [run.start + keys * i // num for i in range(num + 1)]
        for start, stop in pairwise(bounds):
            items.append((num_members, len(run.tokens), run.row, start, stop))
            tokens.append(run.tokens)
            num_members += len(run.tokens)
    members = np.concatenate(tokens)
    partials, merges = _merges(members) if shared or len(items) > len(runs) else _no_merges(num_members)
    return KernelItems(np.array(items, dtype=np.int32), members, partials, merges, int(merges[:, 2].sum()))


def _no_merges(num_members: int) -> tuple[Ints, Ints]:
    return np.full(num_members, -1, dtype=np.int32), np.empty((0, 3), dtype=np.int32)


def _merges(members: Ints) -> tuple[Ints, Ints]:
    """Tokens that occur more than once get consecutive partials, one an occurrence."""
    counts = np.bincount(members)
    tokens = np.flatnonzero(counts > 1).astype(np.int32)
    firsts = np.cumsum(counts[tokens]) - counts[tokens]
    order = np.argsort(members, kind="stable")
    several = order[counts[members[order]] > 1]
    partials = np.full(len(members), -1, dtype=np.int32)
    partials[several] = np.arange(len(several), dtype=np.int32)
    return partials, np.stack([tokens, firsts, counts[tokens]], axis=1).astype(np.int32)


LONG_EXTEND = 64  # new tokens of a row from which torch's matrix products beat our vector loops
MAX_HEAD_DIM = 256


def fits(pool: KVPool) -> bool:
    """What the kernel is compiled for."""
    return pool.head_dim % 16 == 0 and pool.head_dim <= MAX_HEAD_DIM and pool.keys[0].dtype in DTYPES


class CpuAttention:
    name = "cpu"
    long_extend = LONG_EXTEND
    attend_row = staticmethod(attend_row)

    def __init__(self, pool: KVPool, heads: int, layers: Sequence[LayerAttention], ops: CpuOps | None) -> None:
        self.pool = pool
        self._layers = layers
        self._rules = [Rule(layer.scale, layer.window or 0, layer.softcap or 0.0) for layer in layers]
        self._ops = ops
        self._heads = heads
        self._partial_out = torch.empty(0)
        self._partial_lse = torch.empty(0)

    def plan(self, inputs: ForwardInputs) -> None:
        num_new = inputs.num_new
        firsts = np.cumsum(num_new, dtype=np.int32) - num_new
        long = num_new >= (self.long_extend if self._ops is not None else 1)
        self._long = [self._long_row(inputs, int(r), firsts) for r in np.flatnonzero(long)]
        short = np.flatnonzero(~long).astype(np.int32)
        self._plan = self._plan_short(inputs, short, firsts, self._ops) if len(short) and self._ops else None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: int, inputs: ForwardInputs) -> Tensor:
        keys, values = self.pool.keys[layer], self.pool.values[layer]
        ops = self._ops
        store_kv = ops.store_kv if ops is not None else reference.store_kv
        store_kv(k, v, keys, values, inputs.slots)
        out = torch.empty(q.shape, dtype=q.dtype)
        if ops is not None and self._plan is not None:
            ops.attend(self._plan, self._rules[layer], q, keys, values, out)
        for row in self._long:
            at = slice(row.first, row.stop)
            out[at] = self.attend_row(row, q[at], k[at], v[at], keys, values, self._layers[layer])
        return out

    def _long_row(self, inputs: ForwardInputs, r: int, firsts: Ints) -> LongRow:
        first = int(firsts[r])
        slots = inputs.table[int(inputs.rows[r]), : int(inputs.seq_lens[r])].long()
        return LongRow(first, first + int(inputs.num_new[r]), slots)

    def _plan_short(self, inputs: ForwardInputs, short: Ints, firsts: Ints, ops: CpuOps) -> Plan:
        threads = ops.threads
        table = inputs.table.numpy()
        shifts = None if inputs.shifts is None else inputs.shifts[short]
        rows, num_new, seq_lens = inputs.rows[short], inputs.num_new[short], inputs.seq_lens[short]
        cuts = cut(table, rows, firsts[short], num_new, seq_lens, threads, shifts)
        limits = inputs.positions.numpy().astype(np.int32) + 1
        self._kept = cuts, limits  # the plan holds bare addresses
        self._fit_partials(cuts.num_partials)
        return self._pack(cuts, limits, table, threads)

    def _fit_partials(self, num: int) -> None:
        heads, head_dim = self._heads, self.pool.head_dim
        if self._partial_lse.shape[0] < num:
            self._partial_out = torch.empty(num, heads, head_dim)
            self._partial_lse = torch.empty(num, heads, 2)

    def _pack(self, cuts: KernelItems, limits: Ints, table: Ints, threads: int) -> Plan:
        return Plan(
            items=cuts.items.ctypes.data,
            members=cuts.members.ctypes.data,
            limits=limits.ctypes.data,
            partials=cuts.partials.ctypes.data,
            merges=cuts.merges.ctypes.data,
            table=table.ctypes.data,
            table_stride=table.shape[1],
            partial_out=self._partial_out.data_ptr(),
            partial_lse=self._partial_lse.data_ptr(),
            num_items=len(cuts.items),
            num_merges=len(cuts.merges),
            heads=self._heads,
            kv_heads=self.pool.keys[0].shape[1],
            head_dim=self.pool.head_dim,
            threads=threads,
        )
