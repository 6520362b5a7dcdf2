"""4-bit weights as checkpoints have them, before they are packed for a device. N in, M out, G groups of inputs."""

from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

GROUPS = (128, 64, 32)  # inputs that share a scale, as kernels have them
MAX_WHOLE = 15


class WordLayout(IntEnum):
    """Where the eight whole numbers of an int32 belong; the numbers are those of linear_int4.cpp."""

    AWQ = 0  # [N, M / 8]: outputs 0, 2, 4, 6, 1, 3, 5, 7
    GPTQ = 1  # [N / 8, M]: inputs 0 to 7


AWQ_OUTPUTS = (0, 2, 4, 6, 1, 3, 5, 7)


@dataclass(frozen=True, slots=True)
class Int4Words:
    """[M, N] = (q - zero) * scale. All tensors are contiguous and on one device; M is a multiple of 8, N of `group`."""

    layout: WordLayout
    words: Tensor  # int32
    scales: Tensor  # [G, M] float16
    zeros: Tensor  # [G, M] float16
    order: Tensor | None  # [N] int32: inputs, those of a group next to each other; None: as they lie
    dtype: torch.dtype  # of inputs and outputs

    @property
    def num_out(self) -> int:
        return self.scales.shape[1]

    @property
    def num_in(self) -> int:
        return self.words.shape[0] * (8 if self.layout is WordLayout.GPTQ else 1)

    @property
    def group(self) -> int:
        return self.num_in // len(self.scales)

    def wholes(self) -> Tensor:
        """[M, N] uint8, inputs as they lie."""
        if self.layout is WordLayout.AWQ:
            return awq_columns(self.words).T.contiguous()
        return eight_of(self.words, dim=1).reshape(self.num_in, self.num_out).T.contiguous()


def awq_columns(words: Tensor) -> Tensor:
    """[n, m] int32 -> [n, 8 m] uint8"""
    places = torch.tensor([AWQ_OUTPUTS.index(output) for output in range(8)])
    return eight_of(words, dim=2)[..., places].reshape(len(words), -1)


def columns(words: Tensor) -> Tensor:
    """[n, m] int32 -> [n, 8 m] uint8, from the lowest bits up"""
    return eight_of(words, dim=2).reshape(len(words), -1)


def eight_of(words: Tensor, dim: int) -> Tensor:
    """The eight numbers of each word as a new dimension, from the lowest bits up."""
    return torch.stack([(words >> 4 * i & MAX_WHOLE).to(torch.uint8) for i in range(8)], dim)


def group_of(num_in: int, most: int = GROUPS[0]) -> int | None:
    """The largest group of a kernel, `most` at most, that divides the inputs; None if there is none."""
    return next((group for group in GROUPS if group <= most and num_in % group == 0), None)
