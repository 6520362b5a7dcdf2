"""Every op of a model step in plain torch: slow, readable, the oracle of the compiled kernels with the same signatures.

Decides the arithmetic (rounding points included) that a fast kernel must reproduce. Knows no model and no batch.
T new tokens, N hidden size, F intermediate size, H query heads, G key/value heads, D head size, S slots of the pool,
R rows, L longest context. Every float tensor of a call has the same dtype unless a line says otherwise.
"""

import torch
from torch import Tensor
from torch.nn import functional


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [T, N] -> [T, N]. The normalised value is rounded to x's dtype before the weight is applied."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * scaled.to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """residual [T, N] is WRITTEN: residual += x. Returns the norm of the sum. [T, N]"""
    residual += x
    return rms_norm(residual, weight, eps)


def silu_mul(gate_up: Tensor) -> Tensor:
    """[T, 2 F] -> [T, F]: silu of the first half, rounded, times the second half."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate) * up


def rotate(x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor) -> None:
    """Turn the first rotary_dim values of every head, the two halves being the pairs. WRITES x.

    x [T, heads, D] (rows may be strided), cos and sin [L, rotary_dim / 2] float32, positions [T].
    """
    half = cos.shape[-1]
    c, s = cos[positions][:, None], sin[positions][:, None]  # [T, 1, half]
    first, second = x[..., :half].float(), x[..., half : 2 * half].float()
    turned = torch.cat((first * c - second * s, second * c + first * s), dim=-1)
    x[..., : 2 * half] = turned.to(x.dtype)


def store_kv(k: Tensor, v: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """k, v [T, G, D] (rows may be strided) into keys, values [S, G, D], which are WRITTEN, at slots [T] int64."""
    keys[slots] = k
    values[slots] = v


def extend_attention(
    q: Tensor, keys: Tensor, values: Tensor, table: Tensor, num_new: list[int], seq_lens: list[int], scale: float
) -> Tensor:
    """Causal attention of each row's new tokens, all of which are in the pool already. Computes in float32.

    q [T, H, D], keys and values [S, G, D], table [R, L] integer: the slot of every position of every row.
    Row r owns the next num_new[r] of the T queries; they are the last of its seq_lens[r] positions. Returns [T, H, D].
    """
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    group = q.shape[1] // keys.shape[1]
    first = 0
    for row, (new, length) in enumerate(zip(num_new, seq_lens, strict=True)):
        at = table[row, :length].long()
        k = keys[at].float().repeat_interleave(group, dim=1)  # [length, H, D]
        v = values[at].float().repeat_interleave(group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q[first : first + new].float(), k) * scale
        last_key = torch.arange(length - new, length, device=q.device)  # each query sees itself and what is before
        hidden = torch.arange(length, device=q.device)[None, :] > last_key[:, None]
        weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
        out[first : first + new] = torch.einsum("hqk,khd->qhd", weights, v).to(q.dtype)
        first += new
    return out
