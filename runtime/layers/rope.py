"""Rotary position embedding: the tables of cosines and sines for every kind of frequency scaling.

Decides the frequencies, in float32 and in the order of operations that published checkpoints were trained with.
Su et al. 2021 (RoFormer); linear: Chen et al. 2023 (position interpolation); llama3: the smooth cut of Llama 3.1.
`dynamic` stretches frequencies once a sequence outgrows the trained context, which keys that are cached cannot follow:
it is served up to that context, where it equals the default.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ramet.runtime.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RopeShape:
    """Which frequencies, and how they are stretched. `kind` is default, linear, dynamic or llama3."""

    kind: str
    theta: float
    rotary_dim: int  # leading part of every head that is rotated
    original_context: int  # tokens the frequencies were trained for
    factor: float = 1.0
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3


def inverse_frequencies(rope: RopeShape) -> Tensor:
    """[rotary_dim / 2] float32, in radians per position."""
    exponents = torch.arange(0, rope.rotary_dim, 2, dtype=torch.int64).float() / rope.rotary_dim
    plain = 1.0 / (rope.theta**exponents)
    match rope.kind:
        case "default" | "dynamic":
            return plain
        case "linear":
            return plain / rope.factor
        case "llama3":
            return _llama3(plain, rope)
        case _:
            raise ConfigError(f"rope_type is {rope.kind!r}, must be default, linear, dynamic or llama3")


def _llama3(plain: Tensor, rope: RopeShape) -> Tensor:
    """Long wavelengths are slowed by `factor`, short ones kept, those between blended."""
    wavelength = 2 * math.pi / plain
    turns = rope.original_context / wavelength  # full turns inside the trained context
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    middle = (1 - blend) * (plain / rope.factor) + blend * plain
    slowed = torch.where(turns < rope.low_freq_factor, plain / rope.factor, plain)
    between = (turns >= rope.low_freq_factor) & (turns <= rope.high_freq_factor)
    return torch.where(between, middle, slowed)


def rope_tables(rope: RopeShape, num_positions: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(cos, sin), each [num_positions, rotary_dim / 2] float32."""
    if rope.kind == "dynamic" and num_positions > rope.original_context:
        raise ConfigError(
            f"--context-length is {num_positions}, must be at most {rope.original_context}: dynamic rotary scaling "
            "beyond the trained context would change keys that are cached"
        )
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), inverse_frequencies(rope))
    return angles.cos().to(device), angles.sin().to(device)
