"""How the kernels of a device keep the weights of linear layers: each module of ops says it as its `packers`.

So nobody asks which device the ops are of. M outputs, N inputs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from ramet.kernels.int4_words import Int4Words
from ramet.kernels.reference_weights import Int8Weight


class PackedWeight(Protocol):
    """A matrix [M, N] in the form that a device reads fastest."""

    def linear(self, x: Tensor, bias: Tensor | None, wide: bool = False) -> Tensor:
        """x [T, N] -> [T, M], float32 if `wide`"""

    def rows(self, at: Tensor, scale: float = 1.0) -> Tensor:
        """at [n] int64 -> [n, N], times `scale`"""

    def unpacked(self) -> Tensor:
        """[M, N]. On any thread, also while another one records a step."""


class WholePacker(Protocol):
    """Rounds a weight [M, N] to 8 bits. Inputs are rounded as well, or not if `weight_only`."""

    def __call__(self, weight: Tensor, *, weight_only: bool = False) -> PackedWeight: ...


Packer = Callable[[Tensor], PackedWeight]
WordsPacker = Callable[[Int4Words | Int8Weight], PackedWeight]  # of what a checkpoint has in few bits


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """A layout in which packed weights can be kept in a file."""

    name: str  # of the library that reads it
    restored: Callable[[str, Mapping[str, Tensor], Mapping[str, Any]], PackedWeight]  # from kind, tensors and facts


@dataclass(frozen=True, slots=True)
class Packers:
    """What packs a weight [M, N] for the kernels of one device."""

    whole: WholePacker
    fours: Callable[[Tensor, int], PackedWeight]  # to 4 bits; so many inputs share a scale
    words: WordsPacker  # the numbers stay those of the checkpoint
    plain: Packer | None = None  # no number changes; None: torch multiplies by weights as they are
    layout: WeightLayout | None = None  # None: packed weights are not kept in files
