"""Packs weights of linear layers for the compiled kernels when a model is loaded. They are [M, N]: out, in."""

import ctypes
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from ramet.kernels import reference_weights
from ramet.kernels.cpu.experts import DTYPES
from ramet.kernels.cpu.memory import huge_empty, huge_zeros
from ramet.kernels.cpu.native import native
from ramet.kernels.cpu.ops import CpuOps, PlainWeight
from ramet.kernels.cpu.quantised import Int4Weight, Int8Weight
from ramet.kernels.int4_words import Int4Words

BLOCK = 32  # outputs, as in linear.h


def pack(ops: CpuOps, weight: Tensor) -> PlainWeight:
    num_out, num_in = weight.shape
    packed = huge_empty((_size(ops.library, "packed_size", num_out, num_in),), weight.dtype)
    call = native(ops.library, "pack", "ipnnnpi")
    call(DTYPES[weight.dtype], weight.data_ptr(), weight.stride(0), num_out, num_in, packed.data_ptr(), ops.threads)
    return PlainWeight(ops, packed, num_out, num_in)


def pack_int8(ops: CpuOps, weight: Tensor, *, weight_only: bool = False) -> Int8Weight:
    num_out, num_in = weight.shape
    packed = huge_zeros((_size(ops.library, "packed_size", num_out, num_in),), torch.int8)
    whole = -(-num_out // BLOCK) * BLOCK
    scales, sums = torch.zeros(whole), torch.zeros(whole, dtype=torch.int32)
    call = native(ops.library, "pack_int8", "ipnnnpppi")
    source, targets = (weight.data_ptr(), weight.stride(0)), (packed.data_ptr(), scales.data_ptr(), sums.data_ptr())
    call(DTYPES[weight.dtype], *source, num_out, num_in, *targets, ops.threads)
    return Int8Weight(ops, packed, scales, sums, num_out, num_in, weight.dtype, weight_only)


def pack_int4(ops: CpuOps, weight: Tensor, group: int) -> Int4Weight:
    """Rounds each group between its smallest and its largest weight. N is a multiple of `group`: 32, 64 or 128."""
    num_out, num_in = weight.shape
    packed = _int4_zeros(ops.library, num_out, num_in, group)
    call = native(ops.library, "pack_int4", "ipnnnnpi")
    source, sizes = (weight.data_ptr(), weight.stride(0)), (num_out, num_in, group)
    call(DTYPES[weight.dtype], *source, *sizes, packed.data_ptr(), ops.threads)
    return Int4Weight(ops, packed, None, num_out, num_in, group, weight.dtype)


def repack_int4(ops: CpuOps, source: Int4Words) -> Int4Weight:
    """The same numbers in the layout of the kernel."""
    num_out, num_in, group, order = source.num_out, source.num_in, source.group, source.order
    packed = _int4_zeros(ops.library, num_out, num_in, group)
    tensors = (source.words.data_ptr(), source.scales.data_ptr(), source.zeros.data_ptr())
    call, at = native(ops.library, "repack_int4", "ippppnnnpi"), None if order is None else order.data_ptr()
    call(int(source.layout), *tensors, at, num_out, num_in, group, packed.data_ptr(), ops.threads)
    return Int4Weight(ops, packed, order, num_out, num_in, group, source.dtype)


def repack_int8(ops: CpuOps, source: reference_weights.Int8Weight) -> Int8Weight:
    """The same numbers in the layout of the kernel."""
    num_out, num_in = source.whole.shape
    packed = huge_zeros((_size(ops.library, "packed_size", num_out, num_in),), torch.int8)
    rounded_up = -(-num_out // BLOCK) * BLOCK
    scales, sums = torch.zeros(rounded_up), torch.zeros(rounded_up, dtype=torch.int32)
    scales[:num_out] = source.scales
    whole = source.whole.contiguous()
    call = native(ops.library, "repack_int8", "pnnppi")
    call(whole.data_ptr(), num_out, num_in, packed.data_ptr(), sums.data_ptr(), ops.threads)
    return Int8Weight(ops, packed, scales, sums, num_out, num_in, source.dtype, source.weight_only)


def _int4_zeros(library: ctypes.CDLL, num_out: int, num_in: int, group: int) -> Tensor:
    assert num_in % group == 0 and group in (32, 64, 128), (num_in, group)
    return huge_zeros((_size(library, "packed_int4_size", num_out, num_in, group),), torch.uint8)


def _size(library: ctypes.CDLL, name: str, *sizes: int) -> int:
    size = getattr(library, f"ramet_{name}")
    size.argtypes, size.restype = (ctypes.c_int64,) * len(sizes), ctypes.c_int64
    return int(size(*sizes))


KINDS: dict[str, Any] = {kind.__name__: kind for kind in (PlainWeight, Int8Weight, Int4Weight)}


def parts_of(weight: Any) -> tuple[str, dict[str, Tensor], dict[str, Any]]:
    """Of a packed weight: which of KINDS it is, its tensors, and what else it needs, as JSON has it."""
    values = {field.name: getattr(weight, field.name) for field in fields(weight) if field.name != "ops"}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    others = {name: value for name, value in values.items() if name not in tensors}
    if "dtype" in others:
        others["dtype"] = str(others["dtype"]).removeprefix("torch.")
    return type(weight).__name__, tensors, others


def weight_of(ops: CpuOps, kind: str, tensors: Mapping[str, Tensor], others: Mapping[str, Any]) -> Any:
    """What `parts_of` took apart."""
    dtype = {"dtype": getattr(torch, others["dtype"])} if "dtype" in others else {}
    return KINDS[kind](ops=ops, **tensors, **{**others, **dtype})
