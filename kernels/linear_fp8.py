"""Linear layers in float8 e4m3 on a GPU: weights with a scale for each output, inputs with one for each token.

Both are rounded to float8, the products are torch's (`torch._scaled_mm`, which the tensor cores make in float8), and
sums are float32. A small kernel in Triton rounds the inputs, so they are read once and written in one byte.
T tokens, N in, M out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ramet.kernels.triton_parts import INTERPRETED, LARGEST_FP8, _stored
from ramet.kernels.triton_there import tl, triton

ALIGNED = 16  # inputs and outputs are a multiple of it
MAX_INPUTS = 1 << 15  # of a program, which holds a token
WARPS = 8


@triton.jit  # type: ignore[untyped-decorator]
def _round_rows(x, x_stride, out, scales, size, BLOCK: tl.constexpr, INTERPRETED: tl.constexpr):  # type: ignore[no-untyped-def]
    """One program a token: its inputs and their scale. Of zeros the scale is 1."""
    token = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inputs = tl.load(x + token * x_stride + at, mask=at < size, other=0.0).to(tl.float32)
    largest = tl.max(tl.abs(inputs), axis=0)
    scale = tl.where(largest > 0, largest / LARGEST_FP8, 1.0)
    tl.store(scales + token, scale)
    tl.store(out + token * size + at, _stored(inputs / scale, out, INTERPRETED), mask=at < size)


def round_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [T, N] (rows may be strided; a NaN stays one) -> float8_e4m3fn [T, N] and their scales [T, 1] float32."""
    tokens, size = x.shape
    assert x.stride(1) == 1, "inputs of a token lie side by side"
    out = torch.empty((tokens, size), dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty((tokens, 1), dtype=torch.float32, device=x.device)
    if tokens:
        block = triton.next_power_of_2(size)
        _round_rows[(tokens,)](x, x.stride(0), out, scales, size, BLOCK=block, INTERPRETED=INTERPRETED, num_warps=WARPS)
    return out, scales


@dataclass(frozen=True, slots=True)
class Fp8Weight:
    """[M, N]. Fits the PackedWeight of the layers."""

    rounded: Tensor  # [M, N] float8_e4m3fn
    scales: Tensor  # [M, 1] float32
    dtype: torch.dtype

    @classmethod
    def of(cls, weight: Tensor) -> "Fp8Weight":
        """Raises ValueError where the tensor cores take no such sizes."""
        if any(size % ALIGNED for size in weight.shape) or weight.shape[1] > MAX_INPUTS:
            raise ValueError(
                f"a layer of {weight.shape[1]} inputs and {weight.shape[0]} outputs, which float8 products do not "
                f"take: both must be multiples of {ALIGNED}, and inputs at most {MAX_INPUTS}"
            )
        return cls(*round_rows(weight), weight.dtype)

    def linear(self, x: Tensor, bias: Tensor | None, wide: bool = False) -> Tensor:
        inputs, scales = round_rows(x)
        out = torch._scaled_mm(
            inputs, self.rounded.T, scale_a=scales, scale_b=self.scales.T, out_dtype=torch.bfloat16, use_fast_accum=True
        )
        out = out if bias is None else out + bias
        return out.float() if wide else out.to(self.dtype)

    def rows(self, at: Tensor, scale: float = 1.0) -> Tensor:
        """In torch: of an embedding only few rows are read."""
        return (self.rounded.view(torch.uint8)[at].view(torch.float8_e4m3fn).float() * (self.scales[at] * scale)).to(
            self.dtype
        )

    def unpacked(self) -> Tensor:
        return self.rows(torch.arange(len(self.rounded), device=self.rounded.device))
