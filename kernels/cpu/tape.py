"""Lists of calls: a tape is made once and run, any number of times, by one call out of Python.

A tape is the CPU's form of a CUDA graph. What its calls read and write stays where it is as long as the tape exists.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from ctypes import addressof, byref
from functools import partial
from typing import Any

import numpy as np

from ramet.kernels.cpu.arena import Arena
from ramet.kernels.cpu.declarations import NativeFunction, native
from ramet.kernels.cpu.native import Natives
from ramet.kernels.cpu.structs import CallList, ListedCall

FORMS = {ctypes.c_float: "f4x"}  # of a word of 64 bits, as replay.h reads it; all others are whole numbers


class Tape:
    """Calls in their order. `keep` what they point to and nobody else holds."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena  # where tensors come from while this records
        self.calls: list[ListedCall] = []  # once it is sealed
        self._recorded: list[tuple[int, bytes]] = []  # functions, and the words of their arguments
        self._kept: list[object] = []

    def add(self, entry: int, words: bytes) -> None:
        """Call the function at `entry` next."""
        self._recorded.append((entry, words))

    def keep(self, *things: object) -> None:
        self._kept += things

    def seal(self) -> None:
        """Nothing is added any more, and the calls can be run."""
        words = np.frombuffer(b"".join(words for _, words in self._recorded), np.int64)
        at = words.ctypes.data
        for entry, own in self._recorded:
            self.calls.append(ListedCall(entry, at))
            at += len(own)
        self.keep(words)
        self._recorded = []

    def __len__(self) -> int:
        return len(self.calls) + len(self._recorded)


class TapedNatives(Natives):
    """In the place of the library's functions: calls go to `tape`, and do not run."""

    def __init__(self, library: ctypes.CDLL) -> None:
        super().__init__(library)
        self.tape: Tape | None = None

    def calling(self, function: NativeFunction) -> Callable[..., Any]:
        entry = function.listed(self._library)
        assert entry is not None, f"{function.name} is no part of a step that is replayed"
        words = struct.Struct("<" + "".join(FORMS.get(each.ctype, "q") for each in function.parameters))

        def call(*arguments: int | float) -> None:
            assert self.tape is not None, "calls are recorded to a tape"
            self.tape.add(entry, words.pack(*arguments))

        return call


class TapeReplay:
    """Runs the calls of sealed tapes, one after the other. Keeps the tapes.

    `begin` returns at once where there are several threads (pool.h), with a number. `join` with it, on the same thread,
    works on the calls until they are done; it comes before what they write is read.
    """

    def __init__(self, library: ctypes.CDLL, tapes: Sequence[Tape], threads: int) -> None:
        calls = [call for tape in tapes for call in tape.calls]
        array = (ListedCall * len(calls))(*calls)
        listed = CallList(addressof(array), len(calls), 0.0)
        listed.kept = tapes, array  # and `begin` keeps it, also where nobody keeps this object
        self.begin: Callable[[], int] = partial(native(library, "replay"), byref(listed), threads)
        self.join: Callable[[int], None] = native(library, "join")
        self.took_s: Callable[[], float] = partial(getattr, listed, "took_s")  # when it ran last, all its calls
