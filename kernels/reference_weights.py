"""The oracle of quantised linear layers, in torch, rounding as kernels/cpu/linear_int8.cpp does. N in, M out."""

from dataclasses import dataclass

import torch
from torch import Tensor

LARGEST = 127.0


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers in [-127, 127] of each row, as float32, and the row's scale [n, 1]."""
    x = x.float()
    largest = x.abs().amax(-1, keepdim=True)
    inverse = torch.where(largest > 0, torch.full_like(largest, LARGEST) / largest, 0)  # a number / x is no division
    return (x.double() * inverse.double()).round().float(), largest / LARGEST


@dataclass(frozen=True, slots=True)
class Int8Weight:
    """[M, N] as whole numbers times a scale for each output. Fits the PackedWeight of the layers."""

    whole: Tensor  # [M, N] int8
    scales: Tensor  # [M] float32
    dtype: torch.dtype

    @classmethod
    def of(cls, weight: Tensor) -> "Int8Weight":
        whole, scales = rounded(weight)
        return cls(whole.to(torch.int8), scales[:, 0], weight.dtype)

    def linear(self, x: Tensor, bias: Tensor | None, wide: bool = False) -> Tensor:
        whole, scales = rounded(x)
        sums = (whole.double() @ self.whole.T.double()).float()  # exact
        out = sums * (self.scales * scales)
        out = out if bias is None else out + bias.float()
        return out if wide else out.to(self.dtype)

    def rows(self, at: Tensor, scale: float = 1.0) -> Tensor:
        return (self.whole[at].float() * (self.scales[at][:, None] * scale)).to(self.dtype)
