"""Tensors of a checkpoint that mean one weight together. Knows no format."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ramet.kernels.int4_words import WordLayout
from ramet.runtime.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What the header of a file says of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    named: str  # the file and the tensor, for errors
    numbers: tuple[int, ...] = ()  # what a tensor of a shape holds


Facts = Mapping[str, TensorFacts]  # of the tensors of a checkpoint, by name
Parts = Mapping[str, Tensor]  # of a bundle, by kind


@dataclass(frozen=True, slots=True)
class FourBits:
    """[M, N] = (q - zero) * scale, as a kernel of 4-bit weights takes it; G groups of `size` inputs."""

    layout: WordLayout
    words: Tensor  # int32, [N, M / 8] or [N / 8, M]
    scales: Tensor  # [G, M]
    zeros: Tensor  # [G, M] float16
    group_of_input: Tensor | None  # [N] int32; None: groups lie side by side
    size: int


@dataclass(frozen=True, slots=True)
class Bytes:
    """[M, N] = whole * scale, as a kernel of 8-bit weights takes it."""

    wholes: Tensor  # [M, N] int8
    scales: Tensor  # [M] float32


@dataclass(slots=True)
class Bundle:
    """`widen` raises ConfigError for numbers that mean nothing, and so does `as_kept`: the parts for a kernel."""

    weight: str  # as the tensor would be called if it were plain
    shape: tuple[int, ...]
    names: Mapping[str, str]  # kind -> tensor
    widen: Callable[[Parts, torch.dtype], Tensor]
    format: str  # as the log names it
    kept: str | None = None  # int4, int8: the form in which a kernel reads it
    as_kept: Callable[[Parts], FourBits | Bytes | None] | None = None  # None: these numbers no kernel reads
    parts: dict[str, Tensor] = field(default_factory=dict)  # that have come

    @property
    def is_whole(self) -> bool:
        return len(self.parts) == len(self.names)

    def widened(self, dtype: torch.dtype) -> Tensor:
        """Once it is whole. The parts are let go."""
        weight = self.widen(self.parts, dtype)
        assert tuple(weight.shape) == self.shape, (self.weight, weight.shape, self.shape)
        self.parts.clear()
        return weight


def facts_of(name: str, facts: Facts, beside: str) -> TensorFacts:
    """Raises ConfigError where `beside` is there and `name` is not."""
    if name not in facts:
        raise ConfigError(f"{facts[beside].named} is there and {name} is not: they mean one weight together")
    return facts[name]


def check_shape(fact: TensorFacts, shapes: Collection[tuple[int, ...]], beside: str) -> None:
    if fact.shape not in shapes:
        valid = " or ".join(str(list(shape)) for shape in shapes)
        raise ConfigError(f"{fact.named} is {list(fact.shape)}, must be {valid} {beside}")


def check_kind(fact: TensorFacts, dtypes: Collection[torch.dtype]) -> None:
    if fact.dtype not in dtypes:
        valid = " or ".join(map(dtype_name, dtypes))
        raise ConfigError(f"{fact.named} is {dtype_name(fact.dtype)}, must be {valid}")


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


FLOATS = (torch.float32, torch.bfloat16, torch.float16)
CHUNK_NUMBERS = 1 << 22  # that are widened at a time, in float32


def rows_of_chunk(num_in: int, multiple: int = 1) -> int:
    """Rows of so many numbers that are widened at a time."""
    return max(1, CHUNK_NUMBERS // max(1, num_in * multiple)) * multiple
