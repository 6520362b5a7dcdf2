"""Which pages of the KV pool and which rows of the slot table are free. Knows no request, no tree, no tensor.

A page is `page_size` consecutive slots; page 0 is the runner's padding page and is never handed out. A slot is the
place of one token's keys and values in every layer.
"""

import numpy as np

from ramet.runtime.arrays import Ints


class PageAllocator:
    """A stack of free pages. Every page is either here or with exactly one owner; a double free is an assertion."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.num_pages = num_pages
        self._stack = np.arange(num_pages, 0, -1, dtype=np.int32)  # top of the stack is its end: page 1 goes first
        self._num_free = num_pages
        self._taken = np.zeros(num_pages + 1, dtype=np.bool_)

    @property
    def total_tokens(self) -> int:
        return self.num_pages * self.page_size

    @property
    def free_tokens(self) -> int:
        return self._num_free * self.page_size

    def allocate(self, num_pages: int) -> Ints | None:
        """`num_pages` page numbers, or None (and nothing taken) when there are fewer."""
        if num_pages > self._num_free:
            return None
        pages = self._stack[self._num_free - num_pages : self._num_free][::-1].copy()
        self._num_free -= num_pages
        self._taken[pages] = True
        return pages

    def free(self, pages: Ints) -> None:
        assert self._taken[pages].all(), f"pages freed twice: {pages[~self._taken[pages]].tolist()}"
        self._taken[pages] = False
        self._stack[self._num_free : self._num_free + len(pages)] = pages
        self._num_free += len(pages)

    def slots_of(self, pages: Ints) -> Ints:
        """The slots of whole pages, in order. [len(pages) * page_size]"""
        if self.page_size == 1:
            return pages
        offsets = np.arange(self.page_size, dtype=np.int32)
        return (pages[:, None] * np.int32(self.page_size) + offsets).reshape(-1)

    def pages_of(self, slots: Ints) -> Ints:
        """The pages of a run of whole pages, given slot by slot."""
        return slots[:: self.page_size] // np.int32(self.page_size)


class RowAllocator:
    """Free rows of a table of running requests. Row 0 is padding."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self._free = list(range(num_rows, 0, -1))

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_taken(self) -> int:
        return self.num_rows - len(self._free)

    def allocate(self) -> int:
        return self._free.pop()

    def free(self, row: int) -> None:
        assert row not in self._free, f"row {row} freed twice"
        self._free.append(row)
