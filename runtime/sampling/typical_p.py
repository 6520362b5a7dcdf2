"""Locally typical sampling: tokens whose surprise is nearest to what the distribution has on average.

Meister et al. 2022, "Locally Typical Sampling", section 4: of the tokens in order of |-log p - H|, H the entropy, the
fewest that have the mass typical_p stay; of equals the lower id comes first. F rows, V vocabulary.
"""

import torch
from torch import Tensor


def typical(scores: Tensor, shares: Tensor) -> Tensor:
    """scores [F, V] float32, shares [F] float32 in (0, 1) -> [F, V] bool: the tokens that stay, at least one."""
    probabilities = scores.exp()
    entropy = -torch.where(probabilities > 0, probabilities * scores, 0.0).sum(dim=-1, keepdim=True)
    order = (scores + entropy).abs().sort(dim=-1, stable=True).indices
    ordered = probabilities.gather(-1, order)
    before = ordered.cumsum(dim=-1, dtype=torch.float64) - ordered
    first = before < shares[:, None]
    first[:, 0] = True
    return torch.zeros_like(first).scatter_(-1, order, first)
