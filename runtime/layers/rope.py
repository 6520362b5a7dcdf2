"""Rotary position embedding: the tables of cosines and sines for every kind of frequency scaling.

Decides the frequencies, in float32 and in the order of operations that published checkpoints were trained with.
Su et al. 2021 (RoFormer); linear: Chen et al. 2023 (position interpolation); yarn: Peng et al. 2023; llama3: the smooth
cut of Llama 3.1; longrope: Ding et al. 2024.
longrope has frequencies for sequences up to the trained context and others for longer ones, whose keys are others from
the first token on. One table has both: the positions of a longer sequence begin behind the trained context.
A model that sees pictures may turn some numbers of a head by when a token is shown, some by its row and some by its
column (multimodal rope: Wang et al. 2024, Qwen2-VL); all three are the position of a text's token.
`dynamic` stretches frequencies once a sequence outgrows the trained context, which keys that are cached cannot follow:
it is served up to that context, where it equals the default.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ramet.kernels.reference import RopeTables
from ramet.runtime.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RopeShape:
    """Which frequencies, and how they are stretched. `kind` is a case of `inverse_frequencies`."""

    kind: str
    theta: float
    rotary_dim: int  # leading part of every head that is rotated
    original_context: int  # tokens the frequencies were trained for
    factor: float = 1.0
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    fast_turns: float = 32.0  # yarn: what turns more often in the trained context is kept
    slow_turns: float = 1.0  # yarn: what turns less often is slowed by `factor`
    whole_bounds: bool = True  # yarn: between which of the numbers of a head that is blended, rounded outwards
    turned: float = 1.0  # proportional: which part of the numbers turns, the fastest; the others stay
    attention_factor: float = 1.0  # yarn, longrope: cosines and sines are multiplied by it, so scores by its square
    score_factor: float = 1.0  # yarn: of scores as a whole, in the families that have it
    short_factors: tuple[float, ...] = ()  # longrope: waves are so much longer, each by its own [rotary_dim / 2]
    long_factors: tuple[float, ...] = ()  # the same, of sequences beyond the trained context
    sections: tuple[int, ...] = ()  # how many of the rotary_dim / 2 turn by time, height and width; (): all by one
    interleaved: bool = False  # these come in turns, and are not one after the other

    def longrope_limit(self, num_positions: int) -> int | None:
        """Tokens of the longest sequence that has other keys than longer ones; None: none of `num_positions` has."""
        return self.original_context if self.kind == "longrope" and num_positions > self.original_context else None


def inverse_frequencies(rope: RopeShape, is_long: bool = False) -> Tensor:
    """[rotary_dim / 2] float32, in radians per position. `is_long`: of a sequence beyond the trained context."""
    plain = 1.0 / (rope.theta ** _exponents(rope))
    match rope.kind:
        case "default" | "dynamic":
            return plain
        case "linear":
            return plain / rope.factor
        case "llama3":
            return _llama3(plain, rope)
        case "yarn":
            return _yarn(plain, rope)
        case "longrope":
            factors = torch.tensor(rope.long_factors if is_long else rope.short_factors, dtype=torch.float32)
            return 1.0 / (factors * rope.theta ** _exponents(rope))
        case "proportional":
            turned = torch.arange(len(plain)) < int(rope.turned * rope.rotary_dim // 2)
            return torch.where(turned, plain, torch.zeros_like(plain)) / rope.factor
        case _:
            kinds = "default, linear, dynamic, llama3, yarn, longrope or proportional"
            raise ConfigError(f"rope_type is {rope.kind!r}, must be {kinds}")


def axes(rope: RopeShape) -> Tensor:
    """[rotary_dim / 2] int64: 0 of what turns by time, 1 by height, 2 by width."""
    if not rope.interleaved:
        return torch.arange(3).repeat_interleave(torch.tensor(rope.sections))
    found = torch.zeros(rope.rotary_dim // 2, dtype=torch.int64)
    for axis in (1, 2):
        found[axis : 3 * rope.sections[axis] : 3] = axis
    return found


class AxesRope:
    """The tables of one step's tokens, for a rope with sections."""

    def __init__(self, rope: RopeShape, device: torch.device) -> None:
        self._frequencies, self._axes = inverse_frequencies(rope).to(device), axes(rope).to(device)
        self._factor = rope.attention_factor

    def tables(self, positions: Tensor) -> RopeTables:
        """positions [3, T] int64 -> (cos, sin), each [T, rotary_dim / 2] float32, row by row in memory."""
        angles = positions.float()[self._axes].T.contiguous() * self._frequencies
        return RopeTables(angles.cos() * self._factor, angles.sin() * self._factor)


def _llama3(plain: Tensor, rope: RopeShape) -> Tensor:
    """Long wavelengths are slowed by `factor`, short ones kept, those between blended."""
    wavelength = 2 * math.pi / plain
    turns = rope.original_context / wavelength  # full turns inside the trained context
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    middle = (1 - blend) * (plain / rope.factor) + blend * plain
    slowed = torch.where(turns < rope.low_freq_factor, plain / rope.factor, plain)
    between = (turns >= rope.low_freq_factor) & (turns <= rope.high_freq_factor)
    return torch.where(between, middle, slowed)


def _yarn(plain: Tensor, rope: RopeShape) -> Tensor:
    """Fast turning pairs of numbers are kept, slow ones slowed by `factor`, those between blended by their place."""

    def place(turns: float) -> float:
        """The place of the pair that turns so often in the trained context, in numbers."""
        spread = math.log(rope.original_context / (turns * 2 * math.pi))
        return rope.rotary_dim * spread / (2 * math.log(rope.theta))

    low, high = place(rope.fast_turns), place(rope.slow_turns)
    if rope.whole_bounds:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.rotary_dim - 1)
    width = high - low if high != low else 0.001
    slowed = ((torch.arange(len(plain), dtype=torch.float32) - low) / width).clamp(0, 1)
    kept = 1 - slowed
    return 1.0 / (rope.factor * rope.theta ** _exponents(rope)) * (1 - kept) + plain * kept


def _exponents(rope: RopeShape) -> Tensor:
    return torch.arange(0, rope.rotary_dim, 2, dtype=torch.int64).float() / rope.rotary_dim


def rope_tables(rope: RopeShape, num_positions: int, device: torch.device) -> RopeTables:
    """(cos, sin), each [num_positions, rotary_dim / 2] float32.

    Where longer sequences have other keys, [limit + num_positions, ...]: theirs lie behind the others.
    """
    if rope.kind == "dynamic" and num_positions > rope.original_context:
        raise ConfigError(
            f"--context-length is {num_positions}, must be at most {rope.original_context}: dynamic rotary scaling "
            "beyond the trained context would change keys that are cached"
        )
    positions, limit = torch.arange(num_positions, dtype=torch.float32), rope.longrope_limit(num_positions)
    angles = torch.outer(positions[:limit], inverse_frequencies(rope))
    if limit is not None:
        angles = torch.cat([angles, torch.outer(positions, inverse_frequencies(rope, is_long=True))])
    cos, sin = (table * rope.attention_factor for table in (angles.cos(), angles.sin()))
    return RopeTables(cos.to(device), sin.to(device))
