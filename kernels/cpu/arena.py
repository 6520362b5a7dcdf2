"""Memory for the tensors of steps, which is used again and again.

Every tensor gets the lowest free place that holds it, whatever lay there before. So memory grows with what lives at
once in the largest step so far, not with the number of sizes that occur, and stops growing once the largest step has
run. Knows no kernel.
"""

import ctypes
import math
import weakref
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from ramet.kernels.cpu.memory import LINE, Pages

CHUNK_BYTES = 1 << 26  # of address space, which takes memory where it is written to
TENSORS_PER_CHUNK = 4  # of the size that made a chunk necessary


class Arena:
    """Tensors whose memory goes to other ones when nothing refers to them any more."""

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []  # the first ones are used first
        self._returned: list[tuple[_Chunk, int, int]] = []  # by finalizers, which run on any thread, at any time

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """As torch.empty on the CPU."""
        num = math.prod(shape)
        if not num:
            return torch.empty(tuple(shape), dtype=dtype)
        size = -(-num * dtype.itemsize // LINE) * LINE
        self._take_back()
        chunk, start = self._place(size)
        block = _type_for(size).from_address(chunk.address + start)
        weakref.finalize(block, self._returned.append, (chunk, start, start + size)).atexit = False
        return torch.frombuffer(block, dtype=dtype, count=num).view(tuple(shape))

    @property
    def num_bytes(self) -> int:
        """The most that its tensors have taken so far, with gaps between them."""
        return sum(chunk.reached for chunk in self._chunks)

    def _take_back(self) -> None:
        while self._returned:
            chunk, start, end = self._returned.pop()
            chunk.give_back(start, end)

    def _place(self, size: int) -> "tuple[_Chunk, int]":
        for chunk in self._chunks:
            if (start := chunk.take(size)) is not None:
                return chunk, start
        made = _Chunk(max(CHUNK_BYTES, TENSORS_PER_CHUNK * size))
        self._chunks.append(made)
        start = made.take(size)
        assert start == 0, "a new chunk holds what it is made for"
        return made, start


class _Chunk:
    """Pages, and which of their bytes are free."""

    def __init__(self, size: int) -> None:
        self._pages = Pages(size)
        self.address = self._pages.address
        self.reached = 0
        self._starts, self._ends = [0], [size]  # of the free places, ascending; no two of them touch

    def take(self, size: int) -> int | None:
        """Where the lowest free place of `size` bytes starts, which is free no more. None: there is none."""
        starts, ends = self._starts, self._ends
        for i, start in enumerate(starts):
            end = start + size
            if end > ends[i]:
                continue
            if end == ends[i]:
                del starts[i], ends[i]
            else:
                starts[i] = end
            self.reached = max(self.reached, end)
            return start
        return None

    def give_back(self, start: int, end: int) -> None:
        starts, ends = self._starts, self._ends
        i = bisect_left(starts, start)
        joins_before, joins_behind = i > 0 and ends[i - 1] == start, i < len(starts) and starts[i] == end
        if joins_before and joins_behind:
            ends[i - 1] = ends[i]
            del starts[i], ends[i]
        elif joins_before:
            ends[i - 1] = end
        elif joins_behind:
            starts[i] = start
        else:
            starts.insert(i, start)
            ends.insert(i, end)


def borrowed(tensor: Tensor) -> Tensor:
    """The same memory, which is not held: once nothing refers to `tensor`, others of its arena may be there."""
    assert tensor.is_contiguous(), tensor.stride()
    block = _type_for(tensor.nbytes).from_address(tensor.data_ptr())
    return torch.frombuffer(block, dtype=tensor.dtype, count=tensor.numel()).view(tensor.shape)


@cache
def _type_for(size: int) -> type[ctypes.Array[ctypes.c_char]]:
    """Of at least `size` bytes. There are four between two powers of two, because Python keeps each of them."""
    step = max(LINE, 1 << max(0, size.bit_length() - 3))
    return ctypes.c_char * (-(-size // step) * step)
