"""Norms, gates, embeddings and layers with a state, by compiled kernels: small_ops.cpp and delta.cpp.

T tokens, N in or hidden, M out, F intermediate.
"""

import torch
from torch import Tensor

from ramet.kernels.cpu.calls import NativeCalls
from ramet.kernels.cpu.native import DTYPES, column
from ramet.kernels.reference_delta import DeltaShape, DeltaStates, DeltaWeights, StateRows


class LayerOps(NativeCalls):
    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None) -> Tensor:
        out, kind, wide = self.empty(*x.shape, dtype=x.dtype), DTYPES[x.dtype], weight.dtype == torch.float32
        self.native.rms_norm(kind, x, x.stride(0), residual, weight, out, *x.shape, eps, wide, self.threads)
        return out

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        return self.rms_norm(x, weight, eps, residual)

    def norm_heads(self, x: Tensor, weight: Tensor | None, eps: float) -> None:
        wide = weight is not None and weight.dtype == torch.float32
        self.native.norm_heads(DTYPES[x.dtype], x, x.stride(0), weight, *x.shape, eps, wide, self.threads)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        out = self.empty(len(gate_up), gate_up.shape[1] // 2, dtype=gate_up.dtype)
        self.native.silu_mul(DTYPES[out.dtype], gate_up, gate_up.stride(0), out, *out.shape, self.threads)
        return out

    def gelu_mul(self, gate_up: Tensor, tanh: bool) -> Tensor:
        out = self.empty(len(gate_up), gate_up.shape[1] // 2, dtype=gate_up.dtype)
        self.native.gelu_mul(DTYPES[out.dtype], gate_up, gate_up.stride(0), out, *out.shape, tanh, self.threads)
        return out

    def clamped_mul(self, gate_up: Tensor, alpha: float, limit: float) -> Tensor:
        out, kind = self.empty(len(gate_up), gate_up.shape[1] // 2, dtype=gate_up.dtype), DTYPES[gate_up.dtype]
        self.native.clamped_mul(kind, gate_up, gate_up.stride(0), alpha, limit, out, *out.shape, self.threads)
        return out

    def gelu_by(self, gate: Tensor, up: Tensor, tanh: bool) -> Tensor:
        out, kind = self.empty(*gate.shape, dtype=gate.dtype), DTYPES[gate.dtype]
        self.native.gelu_by(kind, gate, gate.stride(0), up, up.stride(0), out, *gate.shape, tanh, self.threads)
        return out

    def sigmoid_mul(self, x: Tensor, gates: Tensor) -> Tensor:
        out, kind = self.empty(*x.shape, dtype=x.dtype), DTYPES[x.dtype]
        self.native.sigmoid_mul(kind, x, x.stride(0), gates, gates.stride(0), out, *x.shape, self.threads)
        return out

    def add_scaled(self, x: Tensor, y: Tensor | None, factor: Tensor | None) -> None:
        assert x.is_contiguous() and (y is None or (y.is_contiguous() and y.dtype == x.dtype)), x.stride()
        self.native.add_scaled(DTYPES[x.dtype], x, y, factor, *x.shape, self.threads)

    def softcap(self, x: Tensor, cap: float) -> None:
        assert x.is_contiguous(), x.stride()
        self.native.softcap(x, *x.shape, cap, self.threads)

    def gather(self, table: Tensor, ids: Tensor, scale: float) -> Tensor:
        out = self.empty(len(ids), table.shape[1], dtype=table.dtype)
        self.native.gather(DTYPES[table.dtype], table, ids, scale, out, *out.shape, self.threads)
        return out

    def copy(self, to: Tensor, source: Tensor) -> None:
        """WRITES `to`, contiguous and as large as `source`."""
        assert to.nbytes == source.nbytes and to.is_contiguous() and source.is_contiguous()
        self.keep(to, source)
        self.native.copy(to, source, to.nbytes)

    def delta_net(
        self, x: Tensor, gates: Tensor, of: DeltaShape, weights: DeltaWeights, states: DeltaStates, at: StateRows
    ) -> Tensor:
        """As kernels/reference_delta.py; all tensors but x and gates are contiguous, the columns of `at` int32."""
        self.keep(weights, states, at)
        out, num_saves = self.empty(len(x), of.values, dtype=x.dtype), 0 if at.save_at is None else at.save_at.shape[1]
        self.native.delta_net(
            DTYPES[x.dtype], x, x.stride(0), gates, gates.stride(0),
            weights.conv, weights.a_log, weights.dt_bias, weights.norm, weights.eps, states.last, states.matrix,
            of.key_heads, of.value_heads, of.key, of.value, of.taps,
            column(at.rows), column(at.num_new), column(at.seq_lens), len(at.rows),
            column(at.save_at), column(at.save_to), num_saves, out, self.threads,
        )  # fmt: skip
        return out
