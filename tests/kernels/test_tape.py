"""Memory that is used again: no two tensors at once, and what nothing refers to goes to the next one."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compiled import compiled_kernels
from hypothesis import given
from hypothesis.strategies import integers, lists, tuples

from ramet.kernels import reference_weights as oracle
from ramet.kernels.cpu.arena import Arena, borrowed
from ramet.kernels.cpu.memory import HUGE_PAGE, LINE, SHARED_BYTES, huge_empty, huge_zeros
from ramet.kernels.cpu.tape import TapeReplay
from ramet.kernels.cpu.weight_file import gives_huge_pages, is_on_huge_pages


@given(lists(tuples(integers(1, 5000), integers(0, 9)), min_size=1, max_size=60))
def test_tensors_that_live_together_share_no_memory(plan: list[tuple[int, int]]) -> None:
    arena, alive = Arena(), []
    for size, forgotten in plan:
        tensor = arena.empty((size,), torch.float32)
        tensor.fill_(len(alive))
        alive.append((tensor, len(alive)))
        alive = alive[forgotten:] if forgotten < 3 else alive
        for each, value in alive:
            assert each.eq(value).all()


def test_memory_goes_to_the_next_tensor_of_its_size_once_no_view_is_left() -> None:
    arena = Arena()
    first = arena.empty((100, 100), torch.bfloat16)
    address, view = first.data_ptr(), first[5:]
    del first
    assert arena.empty((100, 100), torch.bfloat16).data_ptr() != address
    del view
    gc.collect()
    assert arena.empty((90, 100), torch.bfloat16).data_ptr() == address


def test_an_arena_stays_as_large_as_what_lives_at_once() -> None:
    arena = Arena()
    for _ in range(100):
        arena.empty((1000, 1000), torch.float32)
    assert arena.num_bytes < 40 << 20


@given(lists(integers(1, 3000), max_size=30))
def test_smaller_steps_take_no_more_memory_than_the_largest_one(smaller: list[int]) -> None:
    def step(tokens: int) -> None:
        x = arena.empty((tokens, 256), torch.bfloat16)
        for _ in range(2):
            qkv = arena.empty((tokens, 512), torch.bfloat16)
            x = qkv = arena.empty((tokens, 256), torch.bfloat16)
            both = arena.empty((tokens, 1408), torch.bfloat16)
            both = arena.empty((tokens, 704), torch.bfloat16)
            x = arena.empty((tokens, 256), torch.bfloat16)
        del qkv, both, x

    arena = Arena()
    step(3000)
    largest = arena.num_bytes
    for tokens in smaller:
        step(tokens)
    assert arena.num_bytes == largest < 3000 * 7000


@given(lists(tuples(integers(1, 40), integers(0, 5)), min_size=1, max_size=80))
def test_bytes_that_come_back_are_one_place_again(plan: list[tuple[int, int]]) -> None:
    arena, alive = Arena(), []
    for num, at in plan:
        alive.insert(at, arena.empty((num * LINE,), torch.int8))
        del alive[at + 3 :]
    reached = arena.num_bytes
    alive.clear()
    whole = arena.empty((reached,), torch.int8)
    assert arena.num_bytes == reached == whole.nbytes


def test_memory_that_is_borrowed_goes_to_the_next_tensor() -> None:
    arena = Arena()
    held = arena.empty((3, 50), torch.float32).fill_(1)
    seen = borrowed(held)
    assert seen.shape == held.shape and seen.eq(1).all()
    del held
    arena.empty((3, 50), torch.float32).fill_(2)
    assert seen.eq(2).all()


def test_large_tensors_begin_on_a_huge_page_and_small_ones_are_torchs() -> None:
    assert huge_empty((HUGE_PAGE,), torch.float32).data_ptr() % HUGE_PAGE == 0
    assert huge_empty((3, 5), torch.bfloat16).shape == (3, 5)


@given(lists(integers(1, 1 << 21), min_size=1, max_size=30))
def test_tensors_that_share_pages_share_no_memory(sizes: list[int]) -> None:
    tensors = [huge_zeros((size,), torch.uint8) for size in sizes]
    for number, tensor in enumerate(tensors):
        assert not tensor.any() and (len(tensor) < SHARED_BYTES or tensor.data_ptr() % LINE == 0)
        tensor.fill_(number + 1)
    for number, tensor in enumerate(tensors):
        assert tensor.eq(number + 1).all()


def test_large_memory_is_on_huge_pages_where_the_system_has_some() -> None:
    if not gives_huge_pages():
        pytest.skip("this system gives no huge pages")
    for size in (1 << 20, 1 << 24):
        assert is_on_huge_pages(huge_empty((size,), torch.uint8).fill_(1))


def test_a_tape_runs_its_calls_again_on_what_lies_there_now() -> None:
    ops = compiled_kernels()
    table, ids, weight = torch.arange(40.0).view(10, 4), torch.tensor([1, 2]), torch.ones(4)
    with ops.recorded() as tape:
        doubled = ops.gather(table, ids, 2.0)
        normed = ops.rms_norm(doubled, weight, 0.0)
    assert len(tape) == 2
    ids.copy_(torch.tensor([9, 0]))
    again = TapeReplay(ops.library, [tape], 1)
    again.begin()
    assert doubled.tolist() == (table[[9, 0]] * 2).tolist()
    torch.testing.assert_close(normed[0], torch.nn.functional.rms_norm(doubled[0], (4,)))


def test_calls_that_are_recorded_do_not_run() -> None:
    ops = compiled_kernels()
    x, residual = torch.randn(3, 16), torch.zeros(3, 16)
    with ops.recorded() as tape:
        ops.add_rms_norm(x, residual, torch.ones(16), 0.0)
    assert not residual.any()
    TapeReplay(ops.library, [tape], 1).begin()
    assert residual.equal(x)


def test_deferred_calls_run_in_their_order_when_all_are_made() -> None:
    ops = compiled_kernels()
    table, ids, second = torch.arange(40.0).view(10, 4), torch.tensor([1, 2]), torch.tensor([1])
    with ops.deferred():
        first = ops.gather(ops.gather(table, ids, 0.5), second, 4.0)
        table.add_(1)
    assert first.tolist() == [((table[2]) * 2).tolist()]


def test_of_deferred_calls_none_runs_after_an_error() -> None:
    ops = compiled_kernels()
    x, weight = torch.randn(3, 16), torch.ones(16)
    residual = torch.zeros(3, 16)
    with pytest.raises(ValueError, match="no"), ops.deferred():
        ops.add_rms_norm(x, residual, weight, 0.0)
        raise ValueError("no")
    assert not residual.any()
    ops.add_rms_norm(x, residual, weight, 0.0)
    assert residual.equal(x)


@pytest.mark.parametrize("kind", ["plain", "whole", "fours", "words"])
def test_weights_that_are_read_while_a_step_is_recorded_are_packed_at_once(kind: str) -> None:
    """A thread reads other weights while the one that runs steps may record one."""
    ops, weight = compiled_kernels(), torch.randn(40, 64)
    packers, given = ops.packers, oracle.Int8Weight.of(weight)
    pack: dict[str, Callable[[], Any]] = {
        "plain": lambda: packers.plain(weight),
        "whole": lambda: packers.whole(weight),
        "fours": lambda: packers.fours(weight, 32),
        "words": lambda: packers.words(given),
    }
    expected = pack[kind]()
    with ops.recorded() as tape:
        packed = pack[kind]()
        unpacked = packed.unpacked()
    assert torch.equal(unpacked, packed.rows(torch.arange(40)))
    assert len(tape) == 0 and torch.equal(packed.packed, expected.packed)
    x = torch.randn(3, 64)
    assert torch.equal(packed.linear(x, None), expected.linear(x, None))
