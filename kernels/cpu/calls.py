"""Calls of the library's functions: at once, at the end of a block, or never but as a tape; and memory for results.

Large results lie in memory that is used again (arena.py).
"""

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ramet.kernels.cpu.arena import Arena
from ramet.kernels.cpu.native import Natives
from ramet.kernels.cpu.tape import Tape, TapedNatives, TapeReplay

LARGE_BYTES = 1 << 17  # from which on malloc asks the system for pages and gives them back


class NativeCalls:
    """`native` is what the library's functions are called by now, by the thread that runs steps. Other threads, which
    read weights meanwhile, call `direct`: what it is told is never recorded. Jobs are cut for `threads`.
    """

    def __init__(self, library: ctypes.CDLL, threads: int) -> None:
        self.library, self.threads = library, threads
        self.native = self.direct = Natives(library)
        self._taped = TapedNatives(library)
        self._arena, self._tape_arena = Arena(), Arena()

    @contextmanager
    def recorded(self) -> Iterator[Tape]:
        """The calls that are made inside, as a tape: none runs. What they return stays good while the tape exists."""
        with self._recording(Tape(self._tape_arena)) as tape:
            yield tape

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """The calls that are made inside run at its end, in their order; none does if it ends by an error.

        What they are given must last until then; what they return does. A call by itself costs Python some 0.1 ms,
        because the one before it has taken the caches.
        """
        with self._recording(Tape(self._arena)) as tape:
            yield
        replay = TapeReplay(self.library, (tape,), threads=1)  # runs on this thread; each call has its own threads
        replay.begin()

    @contextmanager
    def _recording(self, tape: Tape) -> Iterator[Tape]:
        assert self._taped.tape is None, "one tape is recorded at a time"
        self._taped.tape, self.native = tape, self._taped
        try:
            yield tape
        finally:
            self._taped.tape, self.native = None, self.direct
        tape.seal()

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """As torch.empty."""
        if self._taped.tape is not None:
            return self._taped.tape.arena.empty(shape, dtype)
        if math.prod(shape) * dtype.itemsize >= LARGE_BYTES:
            return self._arena.empty(shape, dtype)
        return torch.empty(shape, dtype=dtype)

    def keep(self, *things: object) -> None:
        """What calls read, if they are run again or later."""
        if self._taped.tape is not None:
            self._taped.tape.keep(*things)
