"""The ops of a model step on a GPU, with the signatures of kernels/reference.py, which serves where none is faster.

A module, as kernels/reference.py is one: what layers and the sampler take as their ops.
"""

from ramet.kernels.gated import gelu_mul, silu_mul, softcap
from ramet.kernels.norms import add_rms_norm, rms_norm
from ramet.kernels.reference import count_tokens, draw, gather, mask, normalise, penalise
from ramet.kernels.rope import place

__all__ = [
    "add_rms_norm", "count_tokens", "draw", "gather", "gelu_mul", "mask", "normalise", "penalise", "place", "rms_norm",
    "silu_mul", "softcap",
]  # fmt: skip
