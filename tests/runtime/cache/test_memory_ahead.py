"""Memory of a KV pool is taken before its slots are written, what lies there stays, and no more than is near."""

import ctypes
import mmap
import platform
import re
import sys

import pytest
import torch

from ramet.kernels.cpu.memory import HUGE_PAGE, huge_zeros, take
from ramet.runtime.cache.pool import MemoryAhead

SLOT_BYTES = 1024
PAGES = 8  # of each tensor


def num_resident(tensor: torch.Tensor) -> int:
    """Of its huge pages, those that have memory."""
    pages = tensor.nbytes // mmap.PAGESIZE
    there = (ctypes.c_ubyte * pages)()
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(tensor.nbytes), there) == 0
    return sum(each & 1 for each in there) * mmap.PAGESIZE // HUGE_PAGE


def tensors() -> list[torch.Tensor]:
    return [huge_zeros((PAGES * HUGE_PAGE // SLOT_BYTES, SLOT_BYTES), torch.uint8) for _ in range(3)]


@pytest.fixture(autouse=True)
def needs_it() -> None:
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    if sys.platform != "linux" or release is None or tuple(map(int, release.groups())) < (5, 14):
        pytest.skip("only Linux from 5.14 on takes memory before it is written")


def test_the_system_is_asked_in_words_that_it_knows() -> None:
    probe = huge_zeros((2 * HUGE_PAGE,), torch.uint8)
    assert take(probe.data_ptr(), HUGE_PAGE) and num_resident(probe) == 1


def reach(ahead: MemoryAhead, slot: int) -> None:
    ahead.reach(slot)
    if (thread := ahead.thread) is not None:
        thread.join()


def test_memory_is_taken_ahead_of_the_slots_that_are_reached() -> None:
    pools = tensors()
    ahead = MemoryAhead(pools)
    assert [num_resident(pool) for pool in pools] == [0, 0, 0]
    reach(ahead, 0)
    assert [num_resident(pool) for pool in pools] == [2, 2, 2]
    reach(ahead, HUGE_PAGE // SLOT_BYTES)
    assert [num_resident(pool) for pool in pools] == [3, 3, 3]
    reach(ahead, 5)  # what was reached before
    assert [num_resident(pool) for pool in pools] == [3, 3, 3]
    reach(ahead, len(pools[0]) - 1)
    assert [num_resident(pool) for pool in pools] == [PAGES] * 3


def test_what_was_written_stays() -> None:
    pools = tensors()
    pools[1].fill_(7)
    reach(MemoryAhead(pools), len(pools[0]) - 1)
    assert bool((pools[1] == 7).all()) and not bool(pools[2].any())


def test_small_tensors_are_left_alone() -> None:
    ahead = MemoryAhead([torch.zeros(100, 4)])
    assert ahead.reach(99) > 100 and ahead.thread is None


def test_only_slots_that_need_more_have_to_be_told() -> None:
    pools = tensors()
    ahead = MemoryAhead(pools)
    next_slot, told = 0, []
    for slot in range(len(pools[0])):
        if slot >= next_slot:
            told.append(slot)
            next_slot = ahead.reach(slot)
    assert told == [page * HUGE_PAGE // SLOT_BYTES for page in range(PAGES)]
