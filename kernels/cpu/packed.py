"""Packed weights of linear layers, in the layouts of linear.cpp, linear_int8.cpp and linear_int4.cpp.

T tokens, N in, M out, G groups of inputs.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ramet.kernels.cpu.calls import NativeCalls
from ramet.kernels.cpu.native import DTYPES, Natives

Call = tuple[str, *tuple[int | None, ...]]  # name of a function, and what it is told of the weight


@dataclass(frozen=True)
class NativeWeight(ABC):
    """A packed [M, N]."""

    ops: NativeCalls
    packed: Tensor
    num_out: int
    num_in: int
    dtype: torch.dtype  # of inputs and outputs

    @property
    @abstractmethod
    def linear_call(self) -> Call:
        """What multiplies it."""

    @property
    @abstractmethod
    def unpack_call(self) -> Call:
        """What gives rows of it."""

    def linear(self, x: Tensor, bias: Tensor | None, wide: bool = False) -> Tensor:
        """x [T, N], whose rows may be strided, and bias [M] -> [T, M], float32 if `wide`."""
        assert x.dtype == self.dtype and x.shape[1] == self.num_in, (x.dtype, x.shape, self.num_in)
        ops, (name, *words), kind, num_out = self.ops, self.linear_call, DTYPES[x.dtype], self.num_out
        out = ops.empty(len(x), num_out, dtype=torch.float32 if wide else x.dtype)
        multiply = getattr(ops.native, name)
        multiply(kind, x, x.stride(0), *words, bias, out, num_out, *x.shape, num_out, wide, ops.threads)
        return out

    def rows(self, at: Tensor, scale: float = 1.0) -> Tensor:
        """Rows at [n] int64 -> [n, N], times `scale`."""
        return self._unpack(self.ops.native, at, scale, self.ops.empty(len(at), self.num_in, dtype=self.dtype))

    def unpacked(self) -> Tensor:
        """All its rows [M, N]. What reads weights beside the steps calls it: neither a tape nor an arena is touched."""
        return self._unpack(
            self.ops.direct, torch.arange(self.num_out), 1.0, torch.empty(self.num_out, self.num_in, dtype=self.dtype)
        )

    def _unpack(self, native: Natives, at: Tensor, scale: float, out: Tensor) -> Tensor:
        name, *words = self.unpack_call
        getattr(native, name)(DTYPES[out.dtype], *words, self.num_in, at, len(at), scale, out, self.ops.threads)
        return out


@dataclass(frozen=True)
class PlainWeight(NativeWeight):
    """[M, N] of the inputs' dtype."""

    @cached_property
    def linear_call(self) -> Call:
        return "linear", self.packed.data_ptr()

    @cached_property
    def unpack_call(self) -> Call:
        return "unpack", self.packed.data_ptr()


@dataclass(frozen=True)
class PackedInt8(NativeWeight):
    """[M, N] as whole numbers in [-127, 127] times a scale for each output.

    `linear` rounds each token's inputs to whole numbers as well, or takes them as they are if `weight_only`.
    """

    scales: Tensor  # [M rounded up] float32
    sums: Tensor  # [M rounded up] int32
    weight_only: bool

    @cached_property
    def linear_call(self) -> Call:
        addresses = self.packed.data_ptr(), self.scales.data_ptr()
        return ("linear_int8wo", *addresses) if self.weight_only else ("linear_int8", *addresses, self.sums.data_ptr())

    @cached_property
    def unpack_call(self) -> Call:
        return "unpack_int8", self.packed.data_ptr(), self.scales.data_ptr()


@dataclass(frozen=True)
class PackedInt4(NativeWeight):
    """[M, N] as whole numbers in [0, 15], less a zero and times a scale that `group` inputs of an output share.

    `linear` rounds the inputs of each token and group to 8 bits.
    """

    order: Tensor | None  # [N] int32: the inputs as they are grouped
    group: int

    @cached_property
    def linear_call(self) -> Call:
        return "linear_int4", *self._words

    @cached_property
    def unpack_call(self) -> Call:
        return "unpack_int4", *self._words

    @property
    def _words(self) -> tuple[int | None, ...]:
        return self.packed.data_ptr(), None if self.order is None else self.order.data_ptr(), self.group
