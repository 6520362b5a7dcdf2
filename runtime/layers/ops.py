"""The small ops that layers are made of, as one Protocol, so that a device brings its own kernels.

`ramet.kernels.reference` (a module) and `ramet.kernels.cpu.ops.CpuOps` both fit it; the former documents shapes.
"""

from typing import Protocol

from torch import Tensor

from ramet.kernels.packers import Packers
from ramet.kernels.reference import HeadNorms, RopeTables
from ramet.kernels.reference_delta import DeltaShape, DeltaStates, DeltaWeights, StateRows
from ramet.kernels.reference_experts import Gated, Mixture, Projections, RouteRule
from ramet.kernels.stacked_adapters import LayerChanges


class Ops(Protocol):
    @property
    def packers(self) -> Packers: ...

    def layer_changes(self, num_out: int, num_slots: int, by_rows: bool) -> LayerChanges: ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor: ...

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor: ...

    def silu_mul(self, gate_up: Tensor) -> Tensor: ...

    def gelu_mul(self, gate_up: Tensor, tanh: bool) -> Tensor: ...

    def clamped_mul(self, gate_up: Tensor, alpha: float, limit: float) -> Tensor: ...

    def gelu_by(self, gate: Tensor, up: Tensor, tanh: bool) -> Tensor: ...

    def add_scaled(self, x: Tensor, y: Tensor | None, factor: Tensor | None) -> None: ...

    def route(
        self, logits: Tensor, rule: RouteRule, bias: Tensor | None = None, of_experts: Tensor | None = None
    ) -> tuple[Tensor, Tensor]: ...

    def store_routes(self, experts: Tensor, slots: Tensor, table: Tensor) -> None: ...

    def mixture(self, gate_up: Projections, activation: Gated, down: Projections) -> Mixture: ...

    def delta_net(
        self, x: Tensor, gates: Tensor, of: DeltaShape, weights: DeltaWeights, states: DeltaStates, at: StateRows
    ) -> Tensor: ...

    def sigmoid_mul(self, x: Tensor, gates: Tensor) -> Tensor: ...

    def softcap(self, x: Tensor, cap: float) -> None: ...

    def gather(self, table: Tensor, ids: Tensor, scale: float) -> Tensor: ...

    def store_kv(self, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None: ...

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor) -> None: ...

    def of_heads(self, layers: Projections, x: Tensor) -> Tensor: ...

    def store_latents(self, latents: Tensor, turned: Tensor, keys: Tensor, slots: Tensor) -> None: ...

    def norm_rope_store(
        self,
        qkv: Tensor,
        heads: int,
        rope: RopeTables,
        positions: Tensor,
        norms: HeadNorms | None,
        keys: Tensor,
        values: Tensor,
        slots: Tensor,
    ) -> None: ...
