"""Packs weights of linear layers for the compiled kernels when a model is loaded. They are [M, N]: out, in."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ramet.kernels import reference_weights
from ramet.kernels.cpu.calls import NativeCalls
from ramet.kernels.cpu.memory import huge_empty, huge_zeros
from ramet.kernels.cpu.native import DTYPES
from ramet.kernels.cpu.packed import NativeWeight, PackedInt4, PackedInt8, PlainWeight
from ramet.kernels.int4_words import Int4Words
from ramet.kernels.packers import Packers, WeightLayout

BLOCK = 32  # outputs, as in linear.h
KINDS: dict[str, Callable[..., NativeWeight]] = {kind.__name__: kind for kind in (PlainWeight, PackedInt8, PackedInt4)}


def packers_of(ops: NativeCalls) -> Packers:
    return Packers(
        whole=partial(pack_int8, ops),
        fours=partial(pack_int4, ops),
        words=partial(_repack, ops),
        plain=partial(pack, ops),
        layout=WeightLayout(Path(ops.library._name).stem, partial(weight_of, ops)),
    )


def pack(ops: NativeCalls, weight: Tensor) -> PlainWeight:
    num_out, num_in = weight.shape
    packed = huge_empty((ops.direct.packed_size(num_out, num_in),), weight.dtype)
    ops.direct.pack(DTYPES[weight.dtype], weight, weight.stride(0), num_out, num_in, packed, ops.threads)
    return PlainWeight(ops, packed, num_out, num_in, weight.dtype)


def pack_int8(ops: NativeCalls, weight: Tensor, *, weight_only: bool = False) -> PackedInt8:
    made = _int8_zeros(ops, weight.shape, weight.dtype, weight_only)
    ops.direct.pack_int8(
        DTYPES[weight.dtype], weight, weight.stride(0), *weight.shape, made.packed, made.scales, made.sums, ops.threads
    )
    return made


def repack_int8(ops: NativeCalls, source: reference_weights.Int8Weight) -> PackedInt8:
    """The same numbers in the layout of the kernel."""
    made = _int8_zeros(ops, source.whole.shape, source.dtype, source.weight_only)
    made.scales[: made.num_out] = source.scales
    whole = source.whole.contiguous()
    ops.direct.repack_int8(whole, made.num_out, made.num_in, made.packed, made.sums, ops.threads)
    return made


def _int8_zeros(ops: NativeCalls, shape: torch.Size, dtype: torch.dtype, weight_only: bool) -> PackedInt8:
    num_out, num_in = shape
    packed = huge_zeros((ops.direct.packed_size(num_out, num_in),), torch.int8)
    rounded_up = -(-num_out // BLOCK) * BLOCK
    scales, sums = torch.zeros(rounded_up), torch.zeros(rounded_up, dtype=torch.int32)
    return PackedInt8(ops, packed, num_out, num_in, dtype, scales, sums, weight_only)


def pack_int4(ops: NativeCalls, weight: Tensor, group: int) -> PackedInt4:
    """Rounds each group between its smallest and its largest weight. N is a multiple of `group`: 32, 64 or 128."""
    num_out, num_in = weight.shape
    packed = _int4_zeros(ops, num_out, num_in, group)
    ops.direct.pack_int4(DTYPES[weight.dtype], weight, weight.stride(0), num_out, num_in, group, packed, ops.threads)
    return PackedInt4(ops, packed, num_out, num_in, weight.dtype, None, group)


def repack_int4(ops: NativeCalls, source: Int4Words) -> PackedInt4:
    """The same numbers in the layout of the kernel."""
    num_out, num_in, group, order = source.num_out, source.num_in, source.group, source.order
    packed = _int4_zeros(ops, num_out, num_in, group)
    ops.direct.repack_int4(
        source.layout, source.words, source.scales, source.zeros, order, num_out, num_in, group, packed, ops.threads
    )
    return PackedInt4(ops, packed, num_out, num_in, source.dtype, order, group)


def _repack(ops: NativeCalls, source: Int4Words | reference_weights.Int8Weight) -> NativeWeight:
    return repack_int8(ops, source) if isinstance(source, reference_weights.Int8Weight) else repack_int4(ops, source)


def _int4_zeros(ops: NativeCalls, num_out: int, num_in: int, group: int) -> Tensor:
    assert num_in % group == 0 and group in (32, 64, 128), (num_in, group)
    return huge_zeros((ops.direct.packed_int4_size(num_out, num_in, group),), torch.uint8)


def parts_of(weight: Any) -> tuple[str, dict[str, Tensor], dict[str, Any]]:
    """Of a packed weight: which of KINDS it is, its tensors, and what else it needs, as JSON has it."""
    values = {field.name: getattr(weight, field.name) for field in fields(weight) if field.name != "ops"}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    others = {name: value for name, value in values.items() if name not in tensors}
    return type(weight).__name__, tensors, {**others, "dtype": str(weight.dtype).removeprefix("torch.")}


def weight_of(ops: NativeCalls, kind: str, tensors: Mapping[str, Tensor], others: Mapping[str, Any]) -> Any:
    """What `parts_of` took apart."""
    return KINDS[kind](ops=ops, **tensors, **{**others, "dtype": getattr(torch, others["dtype"])})
