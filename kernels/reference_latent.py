"""Latent attention in plain torch: the oracle of kernels/cpu/latent.py, and what serves where no kernel does.

T tokens, H heads, N in, M out, L numbers of a latent, P of a rotated key, S slots of the pool, R rows, K keys of one.
"""

import torch
from torch import Tensor

from ramet.kernels.reference_experts import Projections

MAX_SCORES = 1 << 26  # that are made at once


def of_heads(layers: Projections, x: Tensor) -> Tensor:
    """Each head by a linear layer of its own, without bias. x [T, H, N], heads may be strided -> [T, H, M]"""
    stacked = layers.stacked
    if stacked is not None:
        return torch.einsum("thn,hmn->thm", x, stacked)
    return torch.stack([layer(x[:, head]) for head, layer in enumerate(layers)], dim=1)


def store_latents(latents: Tensor, turned: Tensor, keys: Tensor, slots: Tensor) -> None:
    """latents [T, L] and turned [T, 1, P] side by side into keys [S, 1, L + P], WRITTEN at slots [T] int64."""
    keys[slots] = torch.cat((latents[:, None], turned), dim=-1).to(keys.dtype)


def latent_attention(
    q: Tensor, keys: Tensor, latent: int, table: Tensor, num_new: list[int], seq_lens: list[int], scale: float
) -> Tensor:
    """Causal attention to latents, which are keys with what is behind them, and values: one of each for all heads.

    q [T, H, L + P], keys [S, 1, L + P] of which the first L = `latent` are the values, table [R, K] integer: the slot
    of every position of every row. Row r owns the next num_new[r] of the T queries, the last of its seq_lens[r]
    positions. Computes in float32. Returns [T, H, L].
    """
    out, first = q.new_empty(*q.shape[:2], latent), 0
    for row, (new, length) in enumerate(zip(num_new, seq_lens, strict=True)):
        own = keys[table[row, :length].long(), 0].float()  # [K, L + P]
        step = max(1, MAX_SCORES // (q.shape[1] * length))
        for start in range(0, new, step):
            stop = min(start + step, new)
            seen = length - new + stop
            at = slice(first + start, first + stop)
            scores = torch.einsum("qhd,kd->qhk", q[at].float(), own[:seen]) * scale
            last = torch.arange(length - new + start, seen, device=q.device)  # a query's own key
            later = torch.arange(seen, device=q.device) > last[:, None]  # [q, k]
            weights = scores.masked_fill_(later[:, None], -torch.inf).softmax(dim=-1)
            out[at] = torch.einsum("qhk,kl->qhl", weights, own[:seen, :latent]).to(q.dtype)
        first += new
    return out
