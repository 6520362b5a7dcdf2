"""Whole numbers of 1 to 8 bits as compressed-tensors packs them, a stream of bits in words of 32 from the lowest up.

    X.weight_packed [M, ceil(N b / 32)] int32   X.weight_scale [M, G]   X.weight_shape [2] int64: M, N
    X.weight_zero_point [ceil(M b / 32), G] int32, packed along outputs   X.weight_g_idx [N] int32   ->   X.weight

A number is stored with 2^(b-1) added; b bits, N in, M out, G groups of inputs, which lie side by side without g_idx.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ramet.kernels.int4_words import WordLayout
from ramet.runtime.errors import ConfigError
from ramet.runtime.models.shape import CheckpointQuantization
from ramet.runtime.weights.bundle import (
    FLOATS,
    Bundle,
    Facts,
    FourBits,
    Parts,
    check_kind,
    check_shape,
    facts_of,
    rows_of_chunk,
)
from ramet.runtime.weights.four_bits import fits_kernel

WEIGHT, PACKED, SCALE, SHAPE = ".weight", ".weight_packed", ".weight_scale", ".weight_shape"
ZERO, GROUP_OF_INPUT = ".weight_zero_point", ".weight_g_idx"
OF_INPUTS = (".input_scale", ".input_zero_point", ".output_scale", ".output_zero_point")
WORD_BITS = 32


@dataclass(frozen=True, slots=True)
class PackedFacts:
    """What the headers say of one weight."""

    num_out: int
    num_in: int
    bits: int
    groups: int
    names: dict[str, str]  # kind -> tensor

    @property
    def lowest(self) -> int:
        """The number that is stored as 0."""
        return -(1 << (self.bits - 1))


def packed_facts(stem: str, facts: Facts, quantization: CheckpointQuantization) -> PackedFacts:
    """Raises ConfigError."""
    packed, shape = facts[stem + PACKED], facts_of(stem + SHAPE, facts, stem + PACKED)
    scale = facts_of(stem + SCALE, facts, stem + PACKED)
    check_kind(packed, (torch.int32,))
    check_kind(scale, FLOATS)
    if len(shape.numbers) != 2 or min(shape.numbers) < 1:
        raise ConfigError(f"{shape.named} holds {list(shape.numbers)}, must hold the outputs and inputs of a weight")
    num_out, num_in = shape.numbers
    bits = next((b for b in quantization.bits if packed.shape == (num_out, _words(num_in, b))), None)
    if bits is None:
        valid = " or ".join(str([num_out, _words(num_in, b)]) for b in quantization.bits)
        raise ConfigError(
            f"{packed.named} is {list(packed.shape)}, must be {valid}, as {stem}{SHAPE} holds {[num_out, num_in]}"
        )
    groups = scale.shape[1] if len(scale.shape) == 2 else 0
    if scale.shape != (num_out, groups) or not groups or num_in % groups:
        raise ConfigError(f"{scale.named} is {list(scale.shape)}, must be [{num_out}, groups of {num_in} inputs]")
    names = {
        each: stem + each for each in (PACKED, SCALE, SHAPE, ZERO, GROUP_OF_INPUT, *OF_INPUTS) if stem + each in facts
    }
    if ZERO in names:
        check_kind(facts[stem + ZERO], (torch.int32,))
        check_shape(facts[stem + ZERO], ((_words(num_out, bits), groups),), f"beside {stem}{SCALE}")
    if GROUP_OF_INPUT in names:
        check_kind(facts[stem + GROUP_OF_INPUT], (torch.int32,))
        check_shape(facts[stem + GROUP_OF_INPUT], ((num_in,),), f"beside {stem}{PACKED}")
    return PackedFacts(num_out, num_in, bits, groups, names)


def _words(numbers: int, bits: int) -> int:
    return -(-numbers * bits // WORD_BITS)


def bundle(stem: str, facts: Facts, quantization: CheckpointQuantization) -> Bundle:
    """Raises ConfigError."""
    of, named = packed_facts(stem, facts, quantization), facts[stem + PACKED].named

    def widen(parts: Parts, dtype: torch.dtype) -> Tensor:
        group = group_of_input(of, parts, named)
        scales, zeros = parts[SCALE].float(), zeros_of(of, parts)
        result = torch.empty(of.num_out, of.num_in, dtype=dtype, device=scales.device)
        rows = rows_of_chunk(of.num_in)
        for start in range(0, of.num_out, rows):
            at = slice(start, start + rows)
            numbers = (unpacked(parts[PACKED][at], of.bits, of.num_in) + of.lowest).float()
            if zeros is not None:
                numbers -= zeros[at][:, group]
            result[at] = numbers.mul_(scales[at][:, group])
        return result

    def as_kept(parts: Parts) -> FourBits:
        zeros = zeros_of(of, parts)
        stored = torch.full_like(parts[SCALE].T, -of.lowest) if zeros is None else zeros.T - of.lowest
        words, group = parts[PACKED].T.contiguous(), parts.get(GROUP_OF_INPUT)
        return FourBits(WordLayout.GPTQ, words, parts[SCALE].T, stored.half(), group, of.num_in // of.groups)

    kept = "int4" if of.bits == 4 and fits_kernel(of.num_out, of.num_in, of.num_in // of.groups) else None
    shape, format = (of.num_out, of.num_in), f"compressed-tensors of {of.bits} bits"
    return Bundle(stem + WEIGHT, shape, of.names, widen, format, kept, as_kept)


def group_of_input(of: PackedFacts, parts: Parts, named: str) -> Tensor:
    """[N] int64. Raises ConfigError where g_idx names a group that is not there."""
    if GROUP_OF_INPUT not in parts:
        device = parts[SCALE].device
        return torch.arange(of.num_in, device=device) // (of.num_in // of.groups)
    group = parts[GROUP_OF_INPUT].long()
    if not bool(((group >= 0) & (group < of.groups)).all()):
        raise ConfigError(f"{named}: {GROUP_OF_INPUT[1:]} must be from 0 to {of.groups - 1}")
    return group


def zeros_of(of: PackedFacts, parts: Parts) -> Tensor | None:
    """[M, G] float32; None: all are 0."""
    if ZERO not in parts:
        return None
    return (unpacked(parts[ZERO].T, of.bits, of.num_out) + of.lowest).T.float()


def unpacked(words: Tensor, bits: int, num: int) -> Tensor:
    """words [R, ceil(num b / 32)] int32 -> [R, num] int32, as they are stored."""
    rows, runs = len(words), -(-num // WORD_BITS)  # 32 numbers are `bits` words
    stream = torch.zeros(rows, runs * bits + 1, dtype=torch.int64, device=words.device)
    stream[:, : words.shape[1]] = words.long() & 0xFFFFFFFF
    result = torch.empty(rows, runs, WORD_BITS, dtype=torch.int32, device=words.device)
    for i in range(WORD_BITS):
        word, shift = divmod(i * bits, WORD_BITS)
        both = stream[:, word : word + runs * bits : bits]
        if shift + bits > WORD_BITS:
            both = both | stream[:, word + 1 : word + 1 + runs * bits : bits] << WORD_BITS
        result[:, :, i] = both >> shift & (1 << bits) - 1
    return result.flatten(1)[:, :num]
