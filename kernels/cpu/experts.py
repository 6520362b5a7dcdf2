"""Layers of experts by compiled kernels: experts.cpp.

Decides that all experts of a layer have weights of one form. T tokens, P routes, E experts, N in, M out.
"""

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ramet.kernels.cpu.declarations import functions
from ramet.kernels.cpu.layers import LayerOps
from ramet.kernels.cpu.native import DTYPES
from ramet.kernels.reference_experts import SIGMOID, Gated, Mixture, Projection, Projections, RouteRule

Words = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NativeExperts:
    """One linear layer of each expert."""

    ops: LayerOps
    entry: int  # address of what multiplies one
    words: Words  # [E, width]: arguments that describe each weight
    biases: Words | None  # [E] addresses
    num_in: int
    num_out: int
    kept: tuple[Projection, ...]  # whose memory the addresses are of

    @classmethod
    def of(cls, ops: LayerOps, layers: Sequence[Projection]) -> "NativeExperts":
        packed = [layer.packed for layer in layers]
        ((name, num_out, num_in),) = {(each.linear_call[0], each.num_out, each.num_in) for each in packed}
        entry = functions()[name].listed(ops.library)
        assert entry is not None, name
        words = np.array([[word or 0 for word in each.linear_call[1:]] for each in packed], np.int64)
        addresses = [layer.bias.data_ptr() for layer in layers if layer.bias is not None]
        assert len(addresses) in (0, len(layers)), "all experts have biases, or none"
        biases = np.array(addresses, np.int64) if addresses else None
        return cls(ops, entry, words, biases, num_in, num_out, tuple(layers))

    def linear(self, x: Tensor, ends: Tensor) -> Tensor:
        """x [P, N], of which those of expert e end at ends[e] [E] int32 -> [P, M]"""
        ops, words, biases = self.ops, self.words, None if self.biases is None else self.biases.ctypes.data
        out = ops.empty(len(x), self.num_out, dtype=x.dtype)
        ops.native.linear_of_experts(
            self.entry, words.ctypes.data, words.shape[1], biases, ends, len(ends), DTYPES[x.dtype], x, out,
            self.num_in, self.num_out, ops.threads,
        )  # fmt: skip
        return out

    def of_heads(self, x: Tensor) -> Tensor:
        """x [T, E, N], whose tokens and heads may be strided: each head by the layer of its number -> [T, E, M]"""
        tokens, heads, num_in = x.shape
        ops, words, (step, beside, _) = self.ops, self.words, x.stride()
        assert heads == len(words) and num_in == self.num_in and self.biases is None, (x.shape, self.num_in)
        out, kind = ops.empty(tokens, heads, self.num_out, dtype=x.dtype), DTYPES[x.dtype]
        ops.native.linear_of_heads(
            self.entry, words.ctypes.data, words.shape[1], heads, kind, x, step, beside, out, tokens, num_in,
            self.num_out, ops.threads,
        )  # fmt: skip
        return out


@dataclass(frozen=True, slots=True)
class NativeMixture:
    """Fits the Mixture of kernels/reference_experts.py."""

    gate_up: NativeExperts
    activation: Gated
    down: NativeExperts

    def __call__(
        self, x: Tensor, experts: Tensor, weights: Tensor, shared: Tensor | None = None, gates: Tensor | None = None
    ) -> Tensor:
        ops, (tokens, per_token), num = self.down.ops, experts.shape, len(self.gate_up.words)
        order = ops.empty(tokens * per_token, dtype=torch.int64)
        places = ops.empty(tokens, per_token, dtype=torch.int32)
        ends = ops.empty(num, dtype=torch.int32)
        ops.native.sort_routes(experts, tokens, per_token, num, order, places, ends)
        gated = self.activation(self.gate_up.linear(ops.gather(x, order, 1.0), ends))
        routes = self.down.linear(gated, ends)
        out, kind = ops.empty(tokens, self.down.num_out, dtype=x.dtype), DTYPES[x.dtype]
        ops.native.combine(
            kind, routes, places, weights, shared, gates, out, tokens, per_token, self.down.num_out, ops.threads
        )
        return out


class ExpertOps(LayerOps):
    def __init__(self, library: ctypes.CDLL, threads: int) -> None:
        super().__init__(library, threads)
        self._heads: weakref.WeakKeyDictionary[Projections, NativeExperts] = weakref.WeakKeyDictionary()

    def route(
        self, logits: Tensor, rule: RouteRule, bias: Tensor | None = None, of_experts: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As kernels/reference_experts.py; logits [T, E] float32."""
        assert logits.is_contiguous(), logits.stride()
        (tokens, num), num_chosen = logits.shape, rule.per_token
        experts = self.empty(tokens, num_chosen, dtype=torch.int32)
        weights = self.empty(tokens, num_chosen, dtype=torch.float32)
        self.native.route(
            logits, tokens, num, num_chosen, rule.normalise, rule.scores == SIGMOID, bias, rule.groups,
            rule.kept_groups, rule.of_group, rule.scale, rule.sharpness, of_experts, experts, weights, self.threads,
        )  # fmt: skip
        return experts, weights

    def store_routes(self, experts: Tensor, slots: Tensor, table: Tensor) -> None:
        """As kernels/reference_experts.py; slots [T] int64. WRITES table [S, K] int32."""
        assert table.is_contiguous(), table.stride()
        self.native.store_routes(experts, slots, *experts.shape, table)

    def mixture(self, gate_up: Projections, activation: Gated, down: Projections) -> Mixture:
        """As kernels/reference_experts.py; all weights are packed."""
        return NativeMixture(NativeExperts.of(self, list(gate_up)), activation, NativeExperts.of(self, list(down)))

    def of_heads(self, layers: Projections, x: Tensor) -> Tensor:
        """As kernels/reference_latent.py; all weights are packed."""
        if layers not in self._heads:
            self._heads[layers] = NativeExperts.of(self, list(layers))
        return self._heads[layers].of_heads(x)
