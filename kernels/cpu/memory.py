"""Memory of our own for tensors on the CPU that live long: on huge pages where the system allows it.

A page fault costs microseconds for 4 KiB, which is more than most ops compute in that time. Knows no kernel.
"""

import contextlib
import ctypes
import math
import mmap
import threading
from collections.abc import Sequence

import torch
from torch import Tensor

HUGE_PAGE = 1 << 21
CHUNK_BYTES = 1 << 24  # of the pages that small tensors share
LINE = 64  # bytes of a cache line
MADV_DONTNEED = 4
MADV_POPULATE_WRITE = 23  # of Linux since 5.14; mmap does not know it, and holds Python's lock meanwhile
SHARED_BYTES = 1 << 16  # from which on tensors that live long share huge pages

_madvise = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes, _madvise.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int


def huge_empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """As torch.empty on the CPU, on huge pages. For what lives long: smaller ones share pages, which go together."""
    num = math.prod(shape)
    size = num * dtype.itemsize
    if size < SHARED_BYTES:
        return torch.empty(tuple(shape), dtype=dtype)
    if size >= 2 * HUGE_PAGE:
        pages = Pages(size)
        memory, offset = pages.memory, pages.offset
    else:
        memory, offset = _shared.cut(size)
    return torch.frombuffer(memory, dtype=dtype, count=num, offset=offset).view(tuple(shape))


def huge_zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """As torch.zeros on the CPU; what is large takes memory when it is first written to."""
    made = huge_empty(shape, dtype)  # the system's pages are zeros
    return made if made.nbytes >= 2 * HUGE_PAGE else made.zero_()


def take(address: int, num_bytes: int) -> bool:
    """Have the system give these whole pages their memory now, whatever is in them. False: it cannot be asked to."""
    return _madvise(address, num_bytes, MADV_POPULATE_WRITE) == 0


def give_back(tensor: Tensor) -> None:
    """Have the system take the memory of a tensor on the CPU, which is zeros then, but for the pages at its ends that
    others may share. Its address stays, and what is written to takes memory again.
    """
    start, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last and _madvise(first, last - first, MADV_DONTNEED):
        tensor.zero_()
        return
    flat = tensor.view(-1).view(torch.uint8)
    flat[: min(first, end) - start].zero_()
    if first <= last:
        flat[last - start :].zero_()


class Pages:
    """`size` bytes of zeros from `offset` of `memory` on, at an address that is a multiple of a huge page."""

    def __init__(self, size: int) -> None:
        # private: memory that a child would share counts as a file's, to which the system gives no huge pages by itself
        self.memory = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.offset = -start % HUGE_PAGE
        self.address = start + self.offset
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a system without them
                self.memory.madvise(mmap.MADV_HUGEPAGE)


class _SharedPages:
    """Cuts pieces off pages, one after the other. Pages go when nothing refers to their last piece."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memory: mmap.mmap | None = None
        self._next = self._end = 0

    def cut(self, size: int) -> tuple[mmap.mmap, int]:
        """Memory, and the piece's offset into it."""
        with self._lock:
            if self._memory is None or self._next + size > self._end:
                pages = Pages(CHUNK_BYTES)
                self._memory, self._next, self._end = pages.memory, pages.offset, pages.offset + CHUNK_BYTES
            offset, self._next = self._next, self._next + -(-size // LINE) * LINE
            return self._memory, offset


_shared = _SharedPages()
