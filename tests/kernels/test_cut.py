"""How a step is cut: every key of every token exactly once, shared prefixes found, enough pieces for every core."""

from ctypes import c_int32

import numpy as np
import pytest
import torch
from compiled import compiled_kernels
from hypothesis import given
from hypothesis.strategies import DataObject, data, integers, sampled_from

from ramet.kernels.cpu.attention import AttentionPlanner
from ramet.kernels.reference_cut import MAX_MEMBERS, MIN_SHARED, KernelItems, cut, find_shares


def table_of(runs: list[list[int]]) -> np.ndarray:
    """Row 0 is padding; garbage behind each row's end."""
    table = np.full((len(runs) + 1, max(map(len, runs)) + 3), 7, np.int32)
    for r, run in enumerate(runs):
        table[r + 1, : len(run)] = run
    return table


def covered(work: KernelItems, table: np.ndarray, num_tokens: int) -> list[list[int]]:
    """The slots that each token reads, in no order."""
    read: list[list[int]] = [[] for _ in range(num_tokens)]
    for first, count, row, start, stop in work.items.tolist():
        for token in work.members[first : first + count].tolist():
            read[token] += table[row, start:stop].tolist()
    return read


def plan(runs: list[list[int]], threads: int, new: int = 1) -> tuple[KernelItems, np.ndarray]:
    table = table_of(runs)
    num = np.full(len(runs), new, np.int32)
    lens = np.array([len(run) for run in runs], np.int32)
    rows = np.arange(1, len(runs) + 1, dtype=np.int32)
    return cut(table, rows, np.cumsum(num, dtype=np.int32) - num, num, lens, threads), table


@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("shared", [0, MIN_SHARED - 1, MIN_SHARED, 500])
def test_every_token_reads_every_key_once(threads: int, shared: int) -> None:
    runs = [[*range(1, 1 + shared), *range(10_000 * i, 10_000 * i + 5 + 97 * i)] for i in range(1, 40)]
    work, table = plan(runs, threads)
    for run, read in zip(runs, covered(work, table, len(runs)), strict=True):
        assert sorted(read) == sorted(run)


def test_partials_of_a_token_are_consecutive_and_used_once() -> None:
    runs = [[*range(1, 301), *range(1000 * i, 1000 * i + 400)] for i in range(1, 6)]
    work, _ = plan(runs, threads=2)
    used = sorted(p for p in work.partials.tolist() if p >= 0)
    assert used == list(range(work.num_partials))
    for token, first, count in work.merges.tolist():
        of_token = [p for t, p in zip(work.members.tolist(), work.partials.tolist(), strict=True) if t == token]
        assert sorted(of_token) == list(range(first, first + count)) and count > 1


@pytest.mark.parametrize("new", [MAX_MEMBERS - 1, MAX_MEMBERS])
def test_rows_whose_own_queries_fill_an_item_read_a_shared_prefix_by_themselves(new: int) -> None:
    """It would be read as often together, and what is left be merged besides."""
    runs = [[*range(1, 501), *range(1000 * i, 1000 * i + new)] for i in range(1, 9)]
    work, _ = plan(runs, threads=2, new=new)
    assert (len(work.merges) > 0) == (new < MAX_MEMBERS)
    if new == MAX_MEMBERS:
        assert work.items[:, 3:].tolist() == [[0, 500 + new]] * 8


def test_a_long_row_is_cut_for_every_core_and_a_short_one_is_not() -> None:
    assert len(plan([list(range(1, 4001))], threads=2)[0].items) >= 2
    assert len(plan([list(range(1, 100))], threads=2)[0].items) == 1
    assert len(plan([list(range(1, 4001))], threads=1)[0].items) == 1


def test_no_item_has_more_queries_than_its_cache_holds() -> None:
    work, _ = plan([list(range(1, 400)) for _ in range(3)], threads=2, new=50)
    assert work.items[:, 1].max() <= MAX_MEMBERS


def test_queries_of_an_extend_are_not_read_past_their_end() -> None:
    work, _ = plan([list(range(1, 101))], threads=1, new=60)
    for first, count, _, _, stop in work.items.tolist():
        last = int(work.members[first : first + count].max())
        assert stop == 40 + last + 1


def test_nested_prefixes_are_found_as_a_tree() -> None:
    #  root 100 ─┬─ left 80 ─┬─ 1
    #            │           └─ 2
    #            └─ right ──── 3, 4 share 10 more: too few
    root, left, right = list(range(1, 101)), list(range(200, 280)), list(range(300, 310))
    runs = [[*root, *left, 401, 402], [*root, *left, 411, 412], [*root, *right, 421, 422], [*root, *right, 431, 432]]
    lens = np.array([len(run) for run in runs], np.int32)
    shares = find_shares(table_of(runs), np.arange(1, 5, dtype=np.int32), lens - 1)
    assert sorted((share.rows.tolist(), share.start, share.stop) for share in shares) == [
        ([0, 1], 100, 180),
        ([0, 1, 2, 3], 0, 100),
    ]


def test_what_an_older_request_left_behind_a_row_is_no_prefix() -> None:
    table = np.zeros((3, 400), np.int32)
    table[1:, :] = np.arange(1, 401)  # both rows hold the same old slots, but only the first 3 are theirs
    assert find_shares(table, np.array([1, 2], np.int32), np.array([3, 3], np.int32)) == []


def test_rows_with_contexts_are_compared_slot_by_slot() -> None:
    #  first 100, then a context of its own, then both have the same context in the same place
    first, shared = list(range(1, 101)), list(range(500, 900))
    runs = [[*first, *range(200, 220), *shared, 401], [*first, *range(300, 320), *shared, 402]]
    lens = np.array([len(run) for run in runs], np.int32)
    rows = np.arange(1, 3, dtype=np.int32)
    shares = find_shares(table_of(runs), rows, lens - 1, position_offsets=np.array([20, 20], np.int32))
    assert [(share.rows.tolist(), share.start, share.stop) for share in shares] == [([0, 1], 0, 100)]
    same = find_shares(table_of([runs[0], runs[0]]), rows, lens - 1, position_offsets=np.array([20, 20], np.int32))
    assert [(share.start, share.stop) for share in same] == [(0, 520)]


def native(table: np.ndarray, *columns: np.ndarray | None, threads: int) -> KernelItems:
    """What the compiled planner makes of the same step."""
    ops = type(compiled_kernels())(compiled_kernels().library, threads)
    planner = AttentionPlanner(ops.library, heads=2, kv_heads=1, head_dim=16)
    ops.plan(planner, torch.from_numpy(table), *columns)
    plan = planner.struct
    items = _copied(plan.items, 5 * plan.num_items).reshape(-1, 5)
    num_members, merges = int(items[:, 1].sum()), _copied(plan.merges, 3 * plan.num_merges).reshape(-1, 3)
    members, partials = _copied(plan.members, num_members), _copied(plan.partials, num_members)
    return KernelItems(items, members, partials, merges, int(merges[:, 2].sum()))


def _copied(address: int, num: int) -> np.ndarray:
    return np.ctypeslib.as_array((c_int32 * num).from_address(address)).copy() if num else np.empty(0, np.int32)


@given(data())
def test_the_compiled_planner_cuts_the_same_items(draw: DataObject) -> None:
    num = draw.draw(integers(1, 9))
    rng = np.random.default_rng(draw.draw(integers(0, 2**32 - 1)))
    common = rng.integers(1, 50_000, 900)
    runs = [[*common[: rng.integers(0, 900)], *rng.integers(50_000, 99_000, rng.integers(1, 700))] for _ in range(num)]
    table = table_of([[int(slot) for slot in run] for run in runs])
    num_new = np.array([min(len(run), rng.choice([1, 1, 1, 2, 33, 200])) for run in runs], np.int32)
    seq_lens = np.array([len(run) for run in runs], np.int32)
    rows, firsts = np.arange(1, num + 1, dtype=np.int32), np.cumsum(num_new, dtype=np.int32) - num_new
    shifts = draw.draw(sampled_from([None, np.array(rng.integers(0, 2, num) * 5, np.int32)]))
    threads = draw.draw(integers(1, 5))
    ends = np.repeat(seq_lens, num_new)
    own = np.concatenate([np.arange(end - new, end) for end, new in zip(seq_lens, num_new, strict=True)]) + 1
    sees = draw.draw(sampled_from([None, np.minimum(own + rng.integers(0, 90, len(own)), ends).astype(np.int32)]))
    wanted = cut(table, rows, firsts, num_new, seq_lens, threads, shifts, sees)
    got = native(table, rows, firsts, num_new, seq_lens, shifts, sees, threads=threads)
    for name in ("items", "members", "partials", "merges"):
        assert getattr(got, name).tolist() == getattr(wanted, name).tolist(), name
