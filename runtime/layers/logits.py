"""From the sums of the last layer to hidden states, for the tokens that are asked for alone.

T new tokens, Q that are asked for, N hidden size.
"""

from torch import Tensor

from ramet.runtime.layers.norm import RMSNorm


def final_states(x: Tensor, residual: Tensor, at: Tensor, norm: RMSNorm) -> Tensor:
    """x, residual [T, N]; at [Q] int64 indices into T. Returns [Q, N], what the head reads."""
    return norm.add(x.index_select(0, at), residual.index_select(0, at))


def softcapped(logits: Tensor, softcap: float) -> Tensor:
    """softcap * tanh(logits / softcap). WRITES and returns logits [Q, V] float32."""
    return logits.div_(softcap).tanh_().mul_(softcap)
