"""The oracle of kernels/cpu/plan.cpp: how a step's attention is cut into items, in numpy.

Decides which rows read a shared prefix together, and where long rows are cut so that every thread has work. A slot
holds one token of one position, so two rows with equal slots at a position have equal slots before it: where a common
prefix ends is found by bisection. Only rows with parallel contexts may hold the same slots in another order: these are
compared slot by slot. R rows, L slots of a row of the table.

    row 1   [0 ......... 1024)[1024 .. 1060)      one item: keys [0, 1024) for the queries of rows 1, 2 and 3
    row 2   [   the same     )[1024 . 1050)       three items: each row's own keys
    row 3   [   the same     )[1024 .... 1070)    then partial results are merged, token by token
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]

MIN_SHARED = 64  # keys of a common prefix below which reading them row by row is as good
MIN_PIECE = 128  # keys below which a cut costs more than an idle core
PIECES_PER_THREAD = 2
MAX_MEMBERS = 32  # tokens of one item: beyond, the sums of their queries no longer fit the core's cache


@dataclass(frozen=True, slots=True)
class KernelItems:
    """What each call of the kernel does: arrays of int32 in the layout of kernels/cpu/plan.h."""

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
    position_offsets: Ints | None = None,
    key_ends: Ints | None = None,
) -> KernelItems:
    """table [rows, L] slots; the others [R]. Row r owns tokens [first_tokens[r], first_tokens[r] + num_new[r]).

    key_ends [T]: number of keys that a token attends to; None: those up to its own.
    """
    # a row whose own queries fill an item would read no key less often together with others
    num_sharable = np.where(num_new < MAX_MEMBERS, seq_lens - num_new, 0).astype(np.int32)
    shares = find_shares(table, rows, num_sharable, position_offsets)
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
            last = stop - (first + new - end) if key_ends is None else int(key_ends[at:end].max())
            runs.append(_Run(np.arange(at, end, dtype=np.int32), row, start, last))
    return _pieces(runs, threads, bool(shares))


def find_shares(table: Ints, rows: Ints, num_sharable: Ints, position_offsets: Ints | None = None) -> list[Share]:
    """Common prefixes worth reading together, outermost first; only the first num_sharable[r] slots of a row count.

    position_offsets [R]: rows with parallel contexts are those above 0; None: there are none.
    """
    if len(rows) < 2:
        return []
    found: list[Share] = []
    pending = [(np.arange(len(rows), dtype=np.int32), 0)]
    while pending:
        group, start = pending.pop()
        group = group[num_sharable[group] >= start + MIN_SHARED]
        for alike in _split_by(table[rows[group], start], group):
            have_contexts = position_offsets is not None and bool((position_offsets[alike] > 0).any())
            common_end = _compared_end if have_contexts else _common_end
            stop = common_end(table, rows[alike], start, int(num_sharable[alike].min()))
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
    """`_common_end`, whatever comes after the first difference."""
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
