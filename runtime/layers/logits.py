"""From the last hidden states to logits, only for the tokens that are drawn from. T new tokens, Q drawing rows."""

from collections.abc import Callable

from torch import Tensor

from ramet.runtime.layers.norm import RMSNorm


def draw_logits(
    x: Tensor, residual: Tensor, last_tokens: Tensor, norm: RMSNorm, head: Callable[[Tensor], Tensor]
) -> Tensor:
    """x, residual [T, N]; last_tokens [Q] int64 indices into T. Returns [Q, V] float32, the caller's to write."""
    final = norm.add(x.index_select(0, last_tokens), residual.index_select(0, last_tokens))
    return head(final).float()
