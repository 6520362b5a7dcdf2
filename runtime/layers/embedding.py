"""Token ids to vectors. Knows no vocabulary beyond its size; a tied output head reads the same weight."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Embedding(nn.Module):
    """token_ids [T] int64 -> [T, N]. `weight` [V, N] is not initialised."""

    def __init__(self, vocab_size: int, hidden: int, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, hidden, dtype=dtype), requires_grad=False)

    def forward(self, token_ids: Tensor) -> Tensor:
        return self.weight.index_select(0, token_ids)

    def scores(self, x: Tensor) -> Tensor:
        """The tied output head: x [Q, N] -> [Q, V]."""
        return functional.linear(x, self.weight)
