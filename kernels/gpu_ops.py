"""The ops of a model step on a GPU, with the signatures of kernels/reference.py, which serves where none is faster.

A module, as kernels/reference.py is one: what layers and the sampler take as their ops.
"""

from torch import Tensor

from ramet.kernels import reference_experts
from ramet.kernels.delta_net import delta_net
from ramet.kernels.gated import clamped_mul, gelu_mul, silu_mul, softcap
from ramet.kernels.grouped_linear import combine, gather_linear, scatter_linear, sort_routes
from ramet.kernels.int4_words import Int4Words
from ramet.kernels.linear_int4 import GpuInt4Weight
from ramet.kernels.norms import add_rms_norm, rms_norm
from ramet.kernels.packers import Packers
from ramet.kernels.reference import (
    add_scaled,
    advance,
    count_tokens,
    draw,
    gather,
    gelu_by,
    mask,
    normalise,
    penalise,
    rotate,
    store_kv,
)  # fmt: skip
from ramet.kernels.reference_delta import sigmoid_mul
from ramet.kernels.reference_experts import Gated, Mixture, Projections, route, store_routes
from ramet.kernels.reference_latent import of_heads, store_latents
from ramet.kernels.reference_weights import Int8Weight
from ramet.kernels.rope import norm_rope_store
from ramet.kernels.stacked_adapters import layer_changes

__all__ = [
    "add_rms_norm", "add_scaled", "advance", "clamped_mul", "count_tokens", "delta_net", "draw", "gather", "gelu_by",
    "gelu_mul", "layer_changes", "mask", "mixture", "norm_rope_store", "normalise", "of_heads", "packers", "penalise",
    "rms_norm", "rotate", "route", "sigmoid_mul", "silu_mul", "softcap", "store_kv", "store_latents", "store_routes",
]  # fmt: skip


def _words_kept(source: Int4Words | Int8Weight) -> GpuInt4Weight | Int8Weight:
    return source if isinstance(source, Int8Weight) else GpuInt4Weight.of_words(source)


packers = Packers(Int8Weight.of, GpuInt4Weight.of, _words_kept)


def mixture(gate_up: Projections, activation: Gated, down: Projections) -> Mixture:
    """A mixture by grouped kernels; where weights are packed, the reference serves, which waits for the routing."""
    first, second = gate_up.stacked, down.stacked
    biases = gate_up.stacked_bias, down.stacked_bias
    if first is None or second is None:
        return reference_experts.mixture(gate_up, activation, down)

    def mixed(
        x: Tensor, experts: Tensor, weights: Tensor, shared: Tensor | None = None, gates: Tensor | None = None
    ) -> Tensor:
        routes = sort_routes(experts, len(first))
        made = scatter_linear(activation(gather_linear(x, first, biases[0], routes)), second, biases[1], routes)
        return reference_experts.joined(combine(made, weights), shared, gates)

    return mixed
