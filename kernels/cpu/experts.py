"""Layers of experts by compiled kernels: what experts.cpp is called with.

Decides that all experts of a layer have weights of one form. T tokens, P routes, E experts, N in, M out.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ramet.kernels.cpu.native import Native
from ramet.kernels.reference_experts import Gated, Projection

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
Words = npt.NDArray[np.int64]


class Ops(Protocol):
    """What is needed of kernels/cpu/ops.py."""

    library: ctypes.CDLL
    threads: int

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor: ...

    def call(self, name: str) -> Native: ...

    def gather(self, table: Tensor, ids: Tensor, scale: float) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class NativeExperts:
    """One linear layer of each expert."""

    entry: int  # address of what multiplies one
    words: Words  # [E, width]: what that is told of each weight
    biases: Words | None  # [E] addresses
    num_in: int
    num_out: int
    kept: tuple[Projection, ...]  # whose memory the addresses are of

    @classmethod
    def of(cls, ops: Ops, layers: Sequence[Projection]) -> "NativeExperts":
        packed = [layer.packed for layer in layers]
        (name,), ((num_out, num_in),) = (
            {each.linear_call[0] for each in packed}, {(each.num_out, each.num_in) for each in packed},
        )  # fmt: skip
        entry = ctypes.cast(getattr(ops.library, f"ramet_{name}_words"), ctypes.c_void_p).value
        assert entry is not None, name
        words = [[0 if word is None else word for word in each.linear_call[1:]] for each in packed]
        biases = [layer.bias.data_ptr() for layer in layers if layer.bias is not None]
        assert len(biases) in (0, len(layers)), "all experts have biases, or none"
        of_experts = np.array(biases, np.int64) if biases else None
        return cls(entry, np.array(words, np.int64), of_experts, num_in, num_out, tuple(layers))

    def linear(self, ops: Ops, x: Tensor, ends: Tensor) -> Tensor:
        """x [P, N], of which those of expert e end at ends[e] [E] int32 -> [P, M]"""
        out = ops.empty(len(x), self.num_out, dtype=x.dtype)
        biases = None if self.biases is None else self.biases.ctypes.data
        weights = self.entry, self.words.ctypes.data, self.words.shape[1], biases
        sizes = self.num_in, self.num_out
        ops.call("linear_of_experts")(
            *weights, ends.data_ptr(), len(ends), DTYPES[x.dtype], x.data_ptr(), out.data_ptr(), *sizes, ops.threads
        )
        return out

    def of_heads(self, ops: Ops, x: Tensor) -> Tensor:
        """x [T, E, N], whose tokens and heads may be strided: each head by the layer of its number -> [T, E, M]"""
        tokens, heads, num_in = x.shape
        assert heads == len(self.words) and num_in == self.num_in and self.biases is None, (x.shape, self.num_in)
        out = ops.empty(tokens, heads, self.num_out, dtype=x.dtype)
        weights = self.entry, self.words.ctypes.data, self.words.shape[1]
        source = DTYPES[x.dtype], x.data_ptr(), x.stride(0), x.stride(1)
        sizes = tokens, num_in, self.num_out
        ops.call("linear_of_heads")(*weights, heads, *source, out.data_ptr(), *sizes, ops.threads)
        return out


@dataclass(frozen=True, slots=True)
class NativeMixture:
    """Fits the Mixture of kernels/reference_experts.py."""

    ops: Ops
    gate_up: NativeExperts
    activation: Gated
    down: NativeExperts

    def __call__(
        self, x: Tensor, experts: Tensor, weights: Tensor, shared: Tensor | None = None, gates: Tensor | None = None
    ) -> Tensor:
        ops, (tokens, per_token), num = self.ops, experts.shape, len(self.gate_up.words)
        order = ops.empty(tokens * per_token, dtype=torch.int64)
        places = ops.empty(tokens, per_token, dtype=torch.int32)
        ends = ops.empty(num, dtype=torch.int32)
        addresses = order.data_ptr(), places.data_ptr(), ends.data_ptr()
        ops.call("sort_routes")(experts.data_ptr(), tokens, per_token, num, *addresses)
        gated = self.activation(self.gate_up.linear(ops, ops.gather(x, order, 1.0), ends))
        routes = self.down.linear(ops, gated, ends)
        out = ops.empty(tokens, self.down.num_out, dtype=x.dtype)
        beside = (None if each is None else each.data_ptr() for each in (shared, gates))
        sources = routes.data_ptr(), places.data_ptr(), weights.data_ptr(), *beside
        sizes = tokens, per_token, self.down.num_out
        ops.call("combine")(DTYPES[x.dtype], *sources, out.data_ptr(), *sizes, ops.threads)
        return out
