"""The oracle of quantised linear layers, in torch, rounding as kernels/cpu/linear_int8.cpp and linear_int4.cpp do.

N in, M out, G groups of inputs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ramet.kernels.int4_words import MAX_WHOLE, Int4Words

LARGEST = 127.0


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers in [-127, 127] of each row, as float32, and the row's scale [n, 1]."""
    x = x.float()
    largest = x.abs().amax(-1, keepdim=True)
    inverse = torch.where(largest > 0, torch.full_like(largest, LARGEST) / largest, 0)  # a number / x is no division
    return (x.double() * inverse.double()).round().float(), largest / LARGEST


def finished(out: Tensor, bias: Tensor | None, wide: bool, dtype: torch.dtype) -> Tensor:
    out = out if bias is None else out + bias.float()
    return out if wide else out.to(dtype)


@dataclass(frozen=True, slots=True)
class Int8Weight:
    """[M, N] as whole numbers times a scale for each output. Fits the PackedWeight of the layers."""

    whole: Tensor  # [M, N] int8
    scales: Tensor  # [M] float32
    dtype: torch.dtype
    weight_only: bool  # inputs are not rounded

    @classmethod
    def of(cls, weight: Tensor, *, weight_only: bool = False) -> "Int8Weight":
        whole, scales = rounded(weight)
        return cls(whole.to(torch.int8), scales[:, 0], weight.dtype, weight_only)

    def linear(self, x: Tensor, bias: Tensor | None, wide: bool = False) -> Tensor:
        if self.weight_only:
            return finished((x.float() @ self.whole.T.float()) * self.scales, bias, wide, self.dtype)
        whole, scales = rounded(x)
        sums = (whole.double() @ self.whole.T.double()).float()  # exact
        return finished(sums * (self.scales * scales), bias, wide, self.dtype)

    def rows(self, at: Tensor, scale: float = 1.0) -> Tensor:
        return (self.whole[at].float() * (self.scales[at][:, None] * scale)).to(self.dtype)

    def unpacked(self) -> Tensor:
        return self.rows(torch.arange(len(self.scales)))


@dataclass(frozen=True, slots=True)
class Int4Weight:
    """[M, N] as whole numbers less a zero, times a scale. Fits the PackedWeight of the layers."""

    whole: Tensor  # [M, G, N / G] uint8, inputs as they are grouped
    scales: Tensor  # [M, G] float32
    zeros: Tensor  # [M, G] float32
    order: Tensor | None  # [N]
    dtype: torch.dtype

    @classmethod
    def of(cls, weight: Tensor, group: int) -> "Int4Weight":
        """Round each group between its smallest and its largest weight."""
        x = weight.float().view(len(weight), -1, group)
        low, high = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
        scales = ((high - low) / torch.full_like(high, MAX_WHOLE)).half().float()
        safe = torch.where(scales > 0, scales, torch.inf)
        zeros = (-low / safe).round()
        whole = torch.where(scales > 0, ((x / safe).round() + zeros).clamp(0, MAX_WHOLE), 0)
        return cls(whole.to(torch.uint8), scales[..., 0], zeros[..., 0], None, weight.dtype)

    @classmethod
    def of_words(cls, source: Int4Words) -> "Int4Weight":
        whole = source.wholes()
        whole = whole if source.order is None else whole[:, source.order]
        whole = whole.reshape(source.num_out, -1, source.group)
        return cls(whole, source.scales.T.float(), source.zeros.T.float(), source.order, source.dtype)

    def linear(self, x: Tensor, bias: Tensor | None, wide: bool = False) -> Tensor:
        x = x if self.order is None else x[:, self.order]
        inputs, scales = rounded(x.reshape(len(x), *self.whole.shape[1:]))  # [T, G, N / G], [T, G, 1]
        sums = torch.einsum("tgn,mgn->tmg", inputs.double(), self.whole.double() - self.zeros.double()[..., None])
        out = (sums * (self.scales.double() * scales.double().mT)).sum(-1).float()
        return finished(out, bias, wide, self.dtype)

    def rows(self, at: Tensor, scale: float = 1.0) -> Tensor:
        grouped = (self.whole[at].float() - self.zeros[at][..., None]) * self.scales[at][..., None] * scale
        found = grouped.reshape(len(at), -1)
        if self.order is not None:
            found = torch.empty_like(found).index_copy_(1, self.order.long(), found)
        return found.to(self.dtype)

    def unpacked(self) -> Tensor:
        return self.rows(torch.arange(len(self.scales)))


def words_kept(source: Int4Words | Int8Weight) -> Int4Weight | Int8Weight:
    """What a checkpoint has in few bits, as the same numbers."""
    return source if isinstance(source, Int8Weight) else Int4Weight.of_words(source)
