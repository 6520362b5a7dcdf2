"""Weights of 8 bits that are multiplied by scales: int8 and float8 of compressed-tensors, float8 in blocks of DeepSeek.

    X.weight [M, N] int8 or float8   X.weight_scale or X.weight_scale_inv float   ->   X.weight [M, N]

The scale is one number, one of each output, of each group of inputs of an output, or of each block of outputs and
inputs. Either name multiplies. int8 may have a zero, in the shape of the scales, that is subtracted first. Scales of
inputs that were measured are not used: ours are found when an input comes. N in, M out.
"""

import torch
from torch import Tensor

from ramet.runtime.models.shape import CheckpointQuantization
from ramet.runtime.weights.bundle import (
    FLOATS,
    Bundle,
    Bytes,
    Facts,
    Parts,
    check_kind,
    check_shape,
    dtype_name,
    facts_of,
    rows_of_chunk,
)

WEIGHT, SCALE, INVERSE_SCALE, ZERO = ".weight", ".weight_scale", ".weight_scale_inv", ".weight_zero_point"
OF_INPUTS = (".input_scale", ".input_zero_point", ".output_scale", ".output_zero_point")
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
USUAL_BLOCK = (128, 128)


def bundle(stem: str, facts: Facts, quantization: CheckpointQuantization) -> Bundle:
    """Raises ConfigError."""
    kind = SCALE if stem + SCALE in facts else INVERSE_SCALE
    scale, weight = facts[stem + kind], facts_of(stem + WEIGHT, facts, stem + kind)
    check_kind(weight, (torch.int8, *FLOAT8))
    check_kind(scale, (*FLOATS, torch.float8_e8m0fnu))
    names = {each: stem + each for each in (WEIGHT, kind, ZERO, *OF_INPUTS) if stem + each in facts}
    block = _block(weight.shape, scale.shape, quantization.block or USUAL_BLOCK)
    if block is None:
        check_shape(scale, _shapes(weight.shape, quantization.block or USUAL_BLOCK), f"beside {stem}{WEIGHT}")
        raise AssertionError(scale.shape)
    if ZERO in names:
        check_kind(facts[stem + ZERO], (torch.int8,))
        check_shape(facts[stem + ZERO], (scale.shape,), f"beside {stem}{kind}")

    def widen(parts: Parts, dtype: torch.dtype) -> Tensor:
        zero = None if ZERO not in parts or not parts[ZERO].any() else parts[ZERO]
        return widened(parts[WEIGHT], parts[kind], zero, block, dtype)

    def as_kept(parts: Parts) -> Bytes | None:
        if ZERO in parts and parts[ZERO].any():
            return None
        scales = parts[kind].float().reshape(-1)
        return Bytes(parts[WEIGHT], scales.expand(weight.shape[0]).contiguous())

    is_kept = weight.dtype == torch.int8 and block[1] == weight.shape[1] and block[0] in (1, weight.shape[0])
    kept = "int8" if is_kept else None
    return Bundle(stem + WEIGHT, weight.shape, names, widen, dtype_name(weight.dtype), kept, as_kept)


def _block(weight: tuple[int, ...], scale: tuple[int, ...], block: tuple[int, int]) -> tuple[int, int] | None:
    """Outputs and inputs that share a scale. None: the shapes do not fit."""
    num_out, num_in = weight if len(weight) == 2 else (0, 0)
    if not num_out or not num_in:
        return None
    if scale in ((), (1,), (1, 1)):
        return num_out, num_in
    if scale in ((num_out,), (num_out, 1)):
        return 1, num_in
    if len(scale) == 2 and scale[0] == num_out and scale[1] and num_in % scale[1] == 0:
        return 1, num_in // scale[1]
    return block if scale == _blocks(num_out, num_in, block) else None


def _blocks(num_out: int, num_in: int, block: tuple[int, int]) -> tuple[int, int]:
    return -(-num_out // block[0]), -(-num_in // block[1])


def _shapes(weight: tuple[int, ...], block: tuple[int, int]) -> list[tuple[int, ...]]:
    """Of a scale, for an error."""
    return [(1,), (weight[0], 1), _blocks(weight[0], weight[1], block)] if len(weight) == 2 else [(1,)]


def widened(weight: Tensor, scale: Tensor, zero: Tensor | None, block: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """weight [M, N], scale and zero as many as there are blocks [rows, columns] -> [M, N], rounded once to `dtype`."""
    num_out, num_in = weight.shape
    grid = _blocks(num_out, num_in, block)
    scales, zeros = scale.float().reshape(grid), None if zero is None else zero.float().reshape(grid)
    result = torch.empty(num_out, num_in, dtype=dtype, device=weight.device)
    rows = rows_of_chunk(num_in, block[0] if block[0] < num_out else 1)
    columns = torch.arange(num_in, device=weight.device) // block[1]
    for start in range(0, num_out, rows):
        of_row = torch.arange(start, min(start + rows, num_out), device=weight.device) // block[0]
        numbers = weight[start : start + rows].float()
        if zeros is not None:
            numbers -= zeros[of_row[:, None], columns]
        result[start : start + rows] = numbers.mul_(scales[of_row[:, None], columns])
    return result
