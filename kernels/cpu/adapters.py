"""LoRA adapters applied to a layer's output by a compiled kernel, adapters.cpp. T tokens, S slots."""

import torch
from torch import Tensor

from ramet.kernels.cpu.calls import NativeCalls
from ramet.kernels.cpu.native import DTYPES
from ramet.kernels.stacked_adapters import Change, Changes, LowRank


class NativeChanges:
    """Fits the LayerChanges of kernels/stacked_adapters.py. No step runs while an adapter is placed."""

    def __init__(self, ops: NativeCalls, num_slots: int, by_rows: bool) -> None:
        """`by_rows`: the layer is an embedding."""
        self._ops, self._by_rows = ops, by_rows
        self._table = torch.zeros(num_slots + 1, dtype=torch.int64)  # addresses, at which a recorded step looks
        self._kept: dict[int, tuple[Changes, Tensor]] = {}

    def place(self, slot: int, changes: Changes) -> None:
        self._table[slot] = 0
        self._kept.pop(slot, None)
        if changes:
            each = [word for change in changes for word in _words(change, self._by_rows)]
            words = torch.tensor([len(changes), *each])
            self._kept[slot] = changes, words
            self._table[slot] = words.data_ptr()

    def add(self, x: Tensor, out: Tensor, slots: Tensor) -> Tensor:
        kind, num_slots, wide = DTYPES[x.dtype], len(self._table) - 1, out.dtype != x.dtype
        self._ops.native.adapt(
            kind, x, x.stride(0), slots, self._table, num_slots, out, out.stride(0), wide, *x.shape, self._ops.threads
        )
        return out

    def add_rows(self, ids: Tensor, out: Tensor, slots: Tensor, scale: float) -> Tensor:
        kind = DTYPES[out.dtype]
        self._ops.native.adapt_rows(kind, ids, slots, self._table, out, *out.shape, scale, self._ops.threads)
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
