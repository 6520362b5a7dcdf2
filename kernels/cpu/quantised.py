"""Packed weights of fewer bits than an input has, in the layouts of linear_int8.cpp and linear_int4.cpp.

T tokens, N in, M out, G groups of inputs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ramet.kernels.cpu.ops import Call, CpuOps


@dataclass(frozen=True, slots=True)
class Int8Weight:
    """[M, N] as whole numbers in [-127, 127] times a scale for each output.

    `linear` rounds each token's inputs to whole numbers as well, or takes them as they are if `weight_only`.
    """

    ops: CpuOps
    packed: Tensor  # int8
    scales: Tensor  # [M rounded up] float32
    sums: Tensor  # [M rounded up] int32
    num_out: int
    num_in: int
    dtype: torch.dtype  # of inputs and outputs
    weight_only: bool

    @property
    def linear_call(self) -> Call:
        addresses = self.packed.data_ptr(), self.scales.data_ptr()
        return ("linear_int8wo", *addresses) if self.weight_only else ("linear_int8", *addresses, self.sums.data_ptr())

    @property
    def unpack_call(self) -> Call:
        return "unpack_int8", self.packed.data_ptr(), self.scales.data_ptr()

    def linear(self, x: Tensor, bias: Tensor | None, wide: bool = False) -> Tensor:
        return self.ops.linear(x, self, bias, wide)

    def rows(self, at: Tensor, scale: float = 1.0) -> Tensor:
        return self.ops.unpack(self, at, scale)


@dataclass(frozen=True, slots=True)
class Int4Weight:
    """[M, N] as whole numbers in [0, 15], less a zero and times a scale that `group` inputs of an output share.

    `linear` rounds the inputs of each token and group to 8 bits.
    """

    ops: CpuOps
    packed: Tensor  # uint8
    order: Tensor | None  # [N] int32: the inputs as they are grouped
    num_out: int
    num_in: int
    group: int
    dtype: torch.dtype  # of inputs and outputs

    @property
    def linear_call(self) -> Call:
        return "linear_int4", *self._words

    @property
    def unpack_call(self) -> Call:
        return "unpack_int4", *self._words

    @property
    def _words(self) -> tuple[int | None, ...]:
        return self.packed.data_ptr(), None if self.order is None else self.order.data_ptr(), self.group

    def linear(self, x: Tensor, bias: Tensor | None, wide: bool = False) -> Tensor:
        return self.ops.linear(x, self, bias, wide)

    def rows(self, at: Tensor, scale: float = 1.0) -> Tensor:
        return self.ops.unpack(self, at, scale)
