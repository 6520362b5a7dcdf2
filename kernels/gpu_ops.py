"""The ops of a model step on a GPU, with the signatures of kernels/reference.py, which serves where none is faster.

A module, as kernels/reference.py is one: what layers and the sampler take as their ops.
"""

from ramet.kernels.gated import gelu_mul, silu_mul, softcap
from ramet.kernels.norms import add_rms_norm, norm_heads, rms_norm
from ramet.kernels.reference import count_tokens, draw, gather, mask, normalise, penalise
from ramet.kernels.rope import rotate, store_kv

__all__ = [
    "add_rms_norm", "count_tokens", "draw", "gather", "gelu_mul", "mask", "norm_heads", "normalise", "penalise",
    "rms_norm", "rotate", "silu_mul", "softcap", "store_kv",
]  # fmt: skip
