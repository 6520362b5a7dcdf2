"""Linear layers of 4-bit weights on a GPU, in Triton: what AWQ and GPTQ checkpoints have, and `--quantization int4`.

Weights stay in 4 bits in memory and become inputs' type in registers; inputs are not rounded (W4A16). Few tokens are
multiplied by the kernel, which reads the words once for TOKENS of them. For more, a weight is widened into memory first
and the matrix product is torch's. kernels/reference_weights.py has the weights' arithmetic.
T tokens, N in, M out, G groups of inputs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ramet.kernels.int4_words import GROUPS, Int4Words
from ramet.kernels.reference_weights import Int4Weight
from ramet.kernels.triton_parts import INTERPRETED, _rounded
from ramet.kernels.triton_there import tl, triton

MANY = 64  # tokens, above which a widened weight pays
TOKENS = (16, 32, 64)  # of a tile
OUTPUTS = 64  # of a tile
INPUTS = 64  # that are widened at once, at most
STAGES = 4
WARPS = 4
EIGHT = 8  # numbers of a word


@triton.jit  # type: ignore[untyped-decorator]
def _weights(  # type: ignore[no-untyped-def]
    packed, scales, zeros, first, group, outputs, num_out, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, like,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    """INPUTS inputs of one group from `first` on: [INPUTS, OUTPUTS] in the type of `like`."""
    there = (outputs < num_out)[None, :]
    at = (first // 8 + tl.arange(0, INPUTS // 8))[:, None] * num_out + outputs[None, :]
    eight = tl.load(packed + at, mask=there, other=0)
    shifts = tl.arange(0, 8) * 4
    whole = (eight[:, None, :] >> shifts[None, :, None]) & 15
    whole = tl.reshape(whole, (INPUTS, OUTPUTS)).to(tl.float32)
    of_group = group * num_out + outputs
    scale = tl.load(scales + of_group, mask=outputs < num_out, other=0.0).to(tl.float32)
    zero = tl.load(zeros + of_group, mask=outputs < num_out, other=0.0).to(tl.float32)
    return _rounded((whole - zero[None, :]) * scale[None, :], like, INTERPRETED)


@triton.jit(do_not_specialize=["num_tokens"])  # type: ignore[untyped-decorator]
def _linear(  # type: ignore[no-untyped-def]
    x, x_stride, packed, scales, zeros, bias, out, num_tokens, num_in, num_out,
    GROUP: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, TOKENS: tl.constexpr, STAGES: tl.constexpr,
    BIASED: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    outputs = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    tokens = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    there = (tokens < num_tokens)[:, None]
    kind = x.dtype.element_ty
    sums = tl.zeros((TOKENS, OUTPUTS), tl.float32)
    for first in tl.range(0, num_in, INPUTS, num_stages=STAGES):
        at = tokens.to(tl.int64)[:, None] * x_stride + (first + tl.arange(0, INPUTS))[None, :]
        inputs = tl.load(x + at, mask=there, other=0.0)
        weights = _weights(
            packed, scales, zeros, first, first // GROUP, outputs, num_out, INPUTS, OUTPUTS, x, INTERPRETED
        )
        if INTERPRETED:
            inputs = inputs.to(tl.float32)
        else:
            weights = weights.to(kind)
        sums = tl.dot(inputs, weights, sums, input_precision="ieee")
    if BIASED:
        sums += tl.load(bias + outputs, mask=outputs < num_out, other=0.0).to(tl.float32)[None, :]
    to = out + tokens.to(tl.int64)[:, None] * num_out + outputs[None, :]
    value = _rounded(sums, out, INTERPRETED).to(out.dtype.element_ty)
    tl.store(to, value, mask=there & (outputs < num_out)[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def _widen(  # type: ignore[no-untyped-def]
    packed, scales, zeros, out, num_in, num_out,
    GROUP: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """out [M, N]"""
    outputs = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    first = tl.program_id(1) * INPUTS
    weights = _weights(
        packed, scales, zeros, first, first // GROUP, outputs, num_out, INPUTS, OUTPUTS, out, INTERPRETED
    )
    to = out + outputs.to(tl.int64)[:, None] * num_in + (first + tl.arange(0, INPUTS))[None, :]
    tl.store(to, tl.trans(weights).to(out.dtype.element_ty), mask=(outputs < num_out)[:, None])


@dataclass(frozen=True, slots=True)
class GpuInt4Weight:
    """[M, N] as words of eight inputs. Fits the PackedWeight of the layers."""

    words: Tensor  # [N / 8, M] int32, of inputs 0 to 7 from the lowest bits up; inputs as they are grouped
    scales: Tensor  # [G, M] float16, as a checkpoint has them
    zeros: Tensor  # [G, M] float16
    order: Tensor | None  # [N]
    dtype: torch.dtype

    @classmethod
    def of(cls, weight: Tensor, group: int) -> "GpuInt4Weight":
        """Rounded as the oracle does. `group` is one of GROUPS."""
        assert group in GROUPS, group
        return cls._of(Int4Weight.of(weight, group))

    @classmethod
    def of_words(cls, source: Int4Words) -> "GpuInt4Weight":
        return cls._of(Int4Weight.of_words(source))

    @classmethod
    def _of(cls, plain: Int4Weight) -> "GpuInt4Weight":
        whole = plain.whole.flatten(1).T.reshape(-1, EIGHT, len(plain.whole)).to(torch.int64)  # [N / 8, 8, M]
        shifts = torch.arange(0, 4 * EIGHT, 4, device=whole.device)[None, :, None]
        words = (whole << shifts).sum(1)  # [N / 8, M], below 2^32
        signed = torch.where(words < 1 << 31, words, words - (1 << 32)).to(torch.int32)
        scales, zeros = (x.T.contiguous().half() for x in (plain.scales, plain.zeros))  # exactly
        return cls(signed.contiguous(), scales, zeros, plain.order, plain.dtype)

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        return self.words.shape[1], EIGHT * self.words.shape[0]

    def linear(self, x: Tensor, bias: Tensor | None, wide: bool = False) -> Tensor:
        x = x if self.order is None else x.index_select(1, self.order)
        if len(x) > MANY:
            out = functional.linear(x, self.widened(), bias)
            return out.float() if wide else out
        num_out, num_in = self.shape
        assert x.stride(1) == 1, "inputs of a token lie side by side"
        out = torch.empty((len(x), num_out), dtype=torch.float32 if wide else x.dtype, device=x.device)
        if len(x):
            tokens = next(size for size in TOKENS if size >= len(x))
            _linear[(triton.cdiv(num_out, OUTPUTS), 1)](
                x, x.stride(0), self.words, self.scales, self.zeros, x if bias is None else bias, out, len(x), num_in,
                num_out, **self._cut(), TOKENS=tokens, STAGES=STAGES, BIASED=bias is not None, num_warps=WARPS,
            )  # fmt: skip
        return out

    def widened(self) -> Tensor:
        """[M, N], inputs as they are grouped."""
        num_out, num_in = self.shape
        out = torch.empty((num_out, num_in), dtype=self.dtype, device=self.words.device)
        cut = self._cut()
        _widen[(triton.cdiv(num_out, OUTPUTS), num_in // int(cut["INPUTS"]))](
            self.words, self.scales, self.zeros, out, num_in, num_out, **cut, num_warps=WARPS
        )
        return out

    def rows(self, at: Tensor, scale: float = 1.0) -> Tensor:
        """In torch: of an embedding only few rows are read."""
        shifts = torch.arange(0, 4 * EIGHT, 4, device=at.device)[None, :, None]
        whole = (self.words[:, at][:, None] >> shifts & 15).reshape(len(self.scales), -1, len(at))  # [G, N / G, n]
        found = (whole.float() - self.zeros[:, None, at].float()) * self.scales[:, None, at].float() * scale
        rows = found.reshape(-1, len(at)).T
        if self.order is not None:
            rows = torch.empty_like(rows).index_copy_(1, self.order.long(), rows)
        return rows.to(self.dtype)

    def unpacked(self) -> Tensor:
        return self.rows(torch.arange(self.shape[0], device=self.words.device))

    def _cut(self) -> dict[str, int | bool]:
        return cuts(self.shape[1] // len(self.scales)) | {"INTERPRETED": INTERPRETED}


def cuts(group: int) -> dict[str, int | bool]:
    """What the kernels of weights with such groups have in common."""
    return {"GROUP": group, "INPUTS": min(group, INPUTS), "OUTPUTS": OUTPUTS}
