"""MXFP4 as GPT-OSS has it (OCP Microscaling Formats 1.0): 32 numbers of 4 bits share a power of two.

    X_blocks [..., M, G, 16] uint8   X_scales [..., M, G] uint8   ->   X [..., 32 G, M]

A byte holds two numbers, the first in its low bits. N = 32 G in, M out. The weight comes out as the plain form of these
checkpoints has it, inputs before outputs.
"""

import torch
from torch import Tensor

from ramet.runtime.errors import ConfigError
from ramet.runtime.models.shape import CheckpointQuantization
from ramet.runtime.weights.bundle import Bundle, Facts, Parts, check_kind, check_shape, facts_of, rows_of_chunk

BLOCKS, SCALES = "_blocks", "_scales"
IN_A_BLOCK, BYTES_OF_A_BLOCK = 32, 16
EXPONENT_OF_ONE = 127  # the scale that is 1
NOT_A_NUMBER = 255
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # of the low three bits; the fourth is the sign


def bundle(stem: str, facts: Facts, quantization: CheckpointQuantization) -> Bundle:
    """Raises ConfigError."""
    names = {BLOCKS: stem + BLOCKS, SCALES: stem + SCALES}
    blocks, scales = facts[stem + BLOCKS], facts_of(stem + SCALES, facts, stem + BLOCKS)
    check_kind(blocks, (torch.uint8,))
    check_kind(scales, (torch.uint8,))
    if len(blocks.shape) < 3 or blocks.shape[-1] != BYTES_OF_A_BLOCK:
        raise ConfigError(f"{blocks.named} is {list(blocks.shape)}, must be [..., outputs, blocks, {BYTES_OF_A_BLOCK}]")
    check_shape(scales, (blocks.shape[:-1],), f"beside {stem}{BLOCKS}")
    *outer, num_out, num_blocks, _ = blocks.shape

    def widen(parts: Parts, dtype: torch.dtype) -> Tensor:
        if bool((parts[SCALES] == NOT_A_NUMBER).any()):
            raise ConfigError(f"{scales.named} has a scale of {NOT_A_NUMBER}, which stands for no number")
        return widened(parts[BLOCKS], parts[SCALES], dtype).mT

    return Bundle(stem, (*outer, num_blocks * IN_A_BLOCK, num_out), names, widen, "mxfp4")


def widened(blocks: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """blocks [..., G, 16] uint8, scales [..., G] uint8 -> [..., 32 G], each number rounded once to `dtype`."""
    assert blocks.shape == (*scales.shape, BYTES_OF_A_BLOCK), (blocks.shape, scales.shape)
    num_blocks, device = scales.numel(), blocks.device
    pairs, exponents = blocks.reshape(num_blocks, BYTES_OF_A_BLOCK), scales.reshape(num_blocks, 1)
    values = torch.tensor([*MAGNITUDES, *(-each for each in MAGNITUDES)], device=device)
    result = torch.empty(num_blocks, IN_A_BLOCK, dtype=dtype, device=device)
    rows = rows_of_chunk(IN_A_BLOCK)
    for start in range(0, num_blocks, rows):
        part = slice(start, start + rows)
        bytes_ = pairs[part].int()
        numbers = values[torch.stack([bytes_ & 15, bytes_ >> 4], -1).flatten(1)]  # [blocks, 32]
        result[part] = torch.ldexp(numbers, exponents[part].int() - EXPONENT_OF_ONE)
    return result.view(*scales.shape[:-1], -1)
