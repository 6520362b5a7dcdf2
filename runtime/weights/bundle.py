"""Tensors of a checkpoint that mean one weight together. Knows no format."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ramet.runtime.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What the header of a file says of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype


Facts = Mapping[str, TensorFacts]  # of the tensors of a checkpoint, by name
Parts = Mapping[str, Tensor]  # of a bundle, by kind


@dataclass(slots=True)
class Bundle:
    weight: str  # as the tensor would be called if it were plain
    shape: tuple[int, ...]
    names: Mapping[str, str]  # kind -> tensor
    widen: Callable[[Parts, torch.dtype], Tensor]
    format: str  # as the log names it
    parts: dict[str, Tensor] = field(default_factory=dict)  # that have come

    def add(self, kind: str, tensor: Tensor, dtype: torch.dtype) -> Tensor | None:
        """The weight in `dtype` once all parts are there. Raises ConfigError for numbers that mean nothing."""
        self.parts[kind] = tensor
        if len(self.parts) < len(self.names):
            return None
        weight = self.widen(self.parts, dtype)
        assert tuple(weight.shape) == self.shape, (self.weight, weight.shape, self.shape)
        self.parts.clear()
        return weight


def facts_of(name: str, facts: Facts, beside: str) -> TensorFacts:
    """Raises ConfigError where `beside` is there and `name` is not."""
    if name not in facts:
        raise ConfigError(f"tensor {beside} is there and {name} is not: they mean one weight together")
    return facts[name]


def check_shape(name: str, facts: Facts, shape: tuple[int, ...], because: str) -> None:
    if facts[name].shape != shape:
        raise ConfigError(f"tensor {name} is {list(facts[name].shape)}, must be {list(shape)} {because}")


def check_kind(name: str, facts: Facts, dtypes: Collection[torch.dtype]) -> None:
    if facts[name].dtype not in dtypes:
        raise ConfigError(f"tensor {name} is {dtype_name(facts[name].dtype)}, must be {some_of(dtypes)}")


def some_of(dtypes: Collection[torch.dtype]) -> str:
    return " or ".join(map(dtype_name, dtypes))


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
