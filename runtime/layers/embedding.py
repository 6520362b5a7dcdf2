"""Token ids to vectors. Knows no vocabulary beyond its size; a tied output head reads the same weight."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Embedding(nn.Module):
    """token_ids [T] int64 -> [T, N]. `weight` [V, N] is not initialised."""

    def __init__(self, vocab_size: int, hidden: int, *, scale: float = 1.0, dtype: torch.dtype) -> None:
        super().__init__()
        # In bfloat16 a Gemma of 3072 was trained with 55.5, not with sqrt(3072) = 55.4256.
        self._scale = torch.tensor(scale, dtype=dtype, device="cpu").item()
        self.weight = nn.Parameter(torch.empty(vocab_size, hidden, dtype=dtype), requires_grad=False)

    def forward(self, token_ids: Tensor) -> Tensor:
        rows = self.weight.index_select(0, token_ids)
        return rows if self._scale == 1.0 else rows * self._scale

    def scores(self, x: Tensor) -> Tensor:
        """The tied output head: x [Q, N] -> [Q, V]."""
        return functional.linear(x, self.weight)
