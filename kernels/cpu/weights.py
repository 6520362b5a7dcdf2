"""Packs weights of linear layers for the compiled kernels when a model is loaded. They are [M, N]: out, in."""

import ctypes

import torch
from torch import Tensor

from ramet.kernels.cpu.memory import huge_empty
from ramet.kernels.cpu.native import native
from ramet.kernels.cpu.ops import DTYPES, CpuOps, Int8Weight, PlainWeight

BLOCK = 32  # outputs, as in linear.h


def pack(ops: CpuOps, weight: Tensor) -> PlainWeight:
    num_out, num_in = weight.shape
    packed = huge_empty((_packed_size(ops.library, num_out, num_in),), weight.dtype)
    call = native(ops.library, "pack", "ipnnnpi")
    call(DTYPES[weight.dtype], weight.data_ptr(), weight.stride(0), num_out, num_in, packed.data_ptr(), ops.threads)
    return PlainWeight(ops, packed, num_out, num_in)


def pack_int8(ops: CpuOps, weight: Tensor) -> Int8Weight:
    num_out, num_in = weight.shape
    packed = huge_empty((_packed_size(ops.library, num_out, num_in),), torch.int8).zero_()
    whole = -(-num_out // BLOCK) * BLOCK
    scales, sums = torch.zeros(whole), torch.zeros(whole, dtype=torch.int32)
    call = native(ops.library, "pack_int8", "ipnnnpppi")
    source, targets = (weight.data_ptr(), weight.stride(0)), (packed.data_ptr(), scales.data_ptr(), sums.data_ptr())
    call(DTYPES[weight.dtype], *source, num_out, num_in, *targets, ops.threads)
    return Int8Weight(ops, packed, scales, sums, num_out, num_in, weight.dtype)


def _packed_size(library: ctypes.CDLL, num_out: int, num_in: int) -> int:
    size = library.ramet_packed_size
    size.argtypes, size.restype = (ctypes.c_int64, ctypes.c_int64), ctypes.c_int64
    return int(size(num_out, num_in))
