"""What the library's functions are called with: structs, and tapes of calls.

A tape is a list of calls with their addresses and numbers, made once and run, any number of times, by one call out of
Python: the CPU's form of a CUDA graph. What its calls read and write stays where it is as long as the tape exists.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from ctypes import Structure, addressof, byref, c_double, c_float, c_int, c_int32, c_int64, c_void_p
from functools import partial
from typing import Any

import numpy as np

from ramet.kernels.cpu.arena import Arena

KINDS: dict[str, Any] = {"p": c_void_p, "n": c_int64, "i": c_int, "f": c_float}  # pointer, size, number, float
Native = Callable[..., None]


class Plan(Structure):
    """Field for field the struct of plan.h."""

    _fields_ = (
        ("items", c_void_p),
        ("members", c_void_p),
        ("limits", c_void_p),
        ("owns", c_void_p),
        ("partials", c_void_p),
        ("merges", c_void_p),
        ("table", c_void_p),
        ("table_stride", c_int64),
        ("partial_out", c_void_p),
        ("partial_lse", c_void_p),
        ("num_items", c_int32),
        ("num_merges", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("threads", c_int32),
    )


class Step(Structure):
    """Field for field the struct of plan.h."""

    _fields_ = (
        ("table", c_void_p),
        ("table_stride", c_int64),
        ("rows", c_void_p),
        ("first_tokens", c_void_p),
        ("num_new", c_void_p),
        ("seq_lens", c_void_p),
        ("shifts", c_void_p),
        ("sees", c_void_p),
        ("num_rows", c_int32),
        ("threads", c_int32),
    )


class Rule(Structure):
    """What a layer does with its scores; field for field the struct of attention.h. 0: no window, no cap, no sinks."""

    _fields_ = (("scale", c_float), ("window", c_int32), ("softcap", c_float), ("sinks", c_void_p))


class Call(Structure):
    """Field for field the struct of replay.cpp."""

    _fields_ = (("run", c_void_p), ("words", c_void_p))


def native(library: ctypes.CDLL, name: str, kinds: str) -> Native:
    """A function of the library that returns nothing. `kinds` has a letter of KINDS for each argument."""
    function: Any = getattr(library, f"ramet_{name}")
    function.argtypes, function.restype = [KINDS[kind] for kind in kinds], None
    made: Native = function
    return made


class Calls(Structure):
    """Field for field the struct of replay.cpp."""

    _fields_ = (("calls", c_void_p), ("num", c_int64), ("took_s", c_double))


class Tape:
    """Calls in their order. `keep` what they point to and nobody else holds."""

    def __init__(self, library: ctypes.CDLL, arena: Arena) -> None:
        self.arena = arena  # where tensors come from while this records
        self.calls: list[Call] = []  # once it is sealed
        self._library = library
        self._recorded: list[tuple[int, Sequence[int]]] = []
        self._kept: list[object] = []

    def recording(self, name: str, kinds: str) -> Native:
        """In the place of `ramet_name` of the library: its calls go to this tape, and do not run."""
        entry = getattr(self._library, f"ramet_{name}_words", None)
        address = None if entry is None else ctypes.cast(entry, c_void_p).value
        floats = [i for i, kind in enumerate(kinds) if kind == "f"]

        def called(*arguments: Any) -> None:
            assert address is not None, f"{name} is no part of a step that is replayed"
            words = [0 if argument is None else argument for argument in arguments]
            for i in floats:
                (words[i],) = struct.unpack("<i", struct.pack("<f", words[i]))
            self._recorded.append((address, [int(word) for word in words]))

        return called

    def keep(self, *things: object) -> None:
        self._kept += things

    def seal(self) -> None:
        """Nothing is added any more, and the calls can be run."""
        words = np.array([word for _, words in self._recorded for word in words], np.int64)
        at = words.ctypes.data
        for entry, arguments in self._recorded:
            self.calls.append(Call(entry, at))
            at += len(arguments) * words.itemsize
        self.keep(words)
        self._recorded = []  # numbers of Python, which take ten times the memory of `words`

    def __len__(self) -> int:
        return len(self.calls) + len(self._recorded)


class Replay:
    """Runs the calls of sealed tapes, one after the other. Keeps the tapes.

    `begin` returns at once where there are several threads (pool.h), with a number. `join` with it, on the same thread,
    works on the calls until they are done; it comes before what they write is read.
    """

    def __init__(self, library: ctypes.CDLL, tapes: Sequence[Tape], threads: int) -> None:
        calls = [call for tape in tapes for call in tape.calls]
        array = (Call * len(calls))(*calls)
        listed = Calls(addressof(array), len(calls), 0.0)
        listed.kept = tapes, array  # and `begin` keeps it, also where nobody keeps this object
        replay: Any = native(library, "replay", "pi")
        replay.restype = c_int64
        self.begin: Callable[[], int] = partial(replay, byref(listed), threads)
        self.join: Callable[[int], None] = native(library, "join", "n")
        self.took_s: Callable[[], float] = partial(getattr, listed, "took_s")  # when it ran last, all its calls
