"""What adapters change in a layer, by compiled kernels: what adapters.cpp is called with. T tokens, S slots."""

from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ramet.kernels.cpu.experts import DTYPES
from ramet.kernels.cpu.native import Native
from ramet.kernels.reference_adapters import Change, Changes, LowRank


class Ops(Protocol):
    """What is needed of kernels/cpu/ops.py."""

    threads: int

    def call(self, name: str) -> Native: ...


class NativeChanges:
    """Fits the LayerChanges of kernels/reference_adapters.py. No step runs while an adapter is placed."""

    def __init__(self, ops: Ops, num_slots: int, by_rows: bool) -> None:
        """`by_rows`: the layer is an embedding."""
        self._ops, self._by_rows = ops, by_rows
        self._table = np.zeros(num_slots + 1, np.int64)  # addresses, at which a recorded step looks
        self._kept: dict[int, tuple[Changes, npt.NDArray[np.int64]]] = {}

    def place(self, slot: int, changes: Changes) -> None:
        self._table[slot] = 0
        self._kept.pop(slot, None)
        if changes:
            words = np.array(
                [len(changes), *(word for change in changes for word in _words(change, self._by_rows))], np.int64
            )
            self._kept[slot] = changes, words
            self._table[slot] = words.ctypes.data

    def add(self, x: Tensor, out: Tensor, slots: Tensor) -> Tensor:
        table = slots.data_ptr(), self._table.ctypes.data, len(self._table) - 1
        to = out.data_ptr(), out.stride(0), out.dtype != x.dtype, len(x), x.shape[1]
        self._ops.call("adapt")(DTYPES[x.dtype], x.data_ptr(), x.stride(0), *table, *to, self._ops.threads)
        return out

    def add_rows(self, ids: Tensor, out: Tensor, slots: Tensor, scale: float) -> Tensor:
        table = slots.data_ptr(), self._table.ctypes.data
        to = out.data_ptr(), *out.shape, scale
        self._ops.call("adapt_rows")(DTYPES[out.dtype], ids.data_ptr(), *table, *to, self._ops.threads)
        return out


def _words(change: Change, by_rows: bool) -> tuple[int, ...]:
    """Field for field the struct of adapters.cpp."""
    if isinstance(change, LowRank):
        assert change.down.is_contiguous() and change.up.is_contiguous() and change.down.dtype == change.up.dtype
        rank, count = change.up.shape
        return rank, change.first, count, change.down.data_ptr(), change.up.data_ptr()
    assert change.weight.is_contiguous() and (change.bias is None or change.bias.is_contiguous())
    bias = 0 if change.bias is None else change.bias.data_ptr()
    return 0, change.first, change.weight.shape[by_rows], change.weight.data_ptr(), bias
