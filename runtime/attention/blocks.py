"""Long extends with a sliding window or a soft cap, in torch: one block of queries after the other against their keys.

Decides how many queries go together. A block gathers the keys between the oldest that its first query sees and its last
query's own, so keys outside a window are not read, and no mask or matrix of scores is larger than a block.
n queries, K keys of a block, H query heads, G kv heads, D head size.
"""

import torch
from torch import Tensor

from ramet.runtime.attention.base import LayerAttention

BLOCK = 256  # queries

flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def attend_in_blocks(q: Tensor, keys: Tensor, values: Tensor, slots: Tensor, layer: LayerAttention) -> Tensor:
    """q [n, H, D] are the last of a row whose tokens are all in the pool, at slots [P + n] int64 -> [n, H, D]."""
    out = torch.empty(q.shape, dtype=q.dtype)
    num_cached = len(slots) - len(q)
    for start in range(0, len(q), BLOCK):
        stop = min(start + BLOCK, len(q))
        first = num_cached + start  # position of the block's first query
        oldest = 0 if layer.window is None else max(0, first - layer.window + 1)
        at = slots[oldest : num_cached + stop]
        k, v = keys.index_select(0, at), values.index_select(0, at)  # [K, G, D]
        hidden = _hidden(stop - start, len(at), layer.window)
        attend = _attend if layer.softcap is None else _attend_capped
        out[start:stop] = attend(q[start:stop], k, v, hidden, layer)
    return out


def heads_first(x: Tensor) -> Tensor:
    """[n, heads, D] -> [1, heads, n, D], no copy."""
    return x.transpose(0, 1)[None]


def _hidden(num_queries: int, num_keys: int, window: int | None) -> Tensor:
    """[n, K] bool: the queries are the last of the keys, and each sees its own and those before it in the window."""
    key = torch.arange(num_keys)[None, :]
    own = torch.arange(num_keys - num_queries, num_keys)[:, None]
    return key > own if window is None else (key > own) | (key <= own - window)


def _attend(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor, layer: LayerAttention) -> Tensor:
    mask = torch.zeros(hidden.shape, dtype=q.dtype).masked_fill_(hidden, -torch.inf)
    queries = heads_first(q)
    out, _ = flash(queries, heads_first(k), heads_first(v), 0.0, False, attn_mask=mask, scale=layer.scale)
    return out[0].transpose(0, 1)


def _attend_capped(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor, layer: LayerAttention) -> Tensor:
    """torch's fused attention has no cap, so scores are made here, in float32."""
    assert layer.softcap is not None, "a layer without a cap takes the fused way"
    group = q.shape[1] // k.shape[1]
    queries = q.float().unflatten(1, (-1, group)).permute(1, 2, 0, 3)  # [G, H / G, n, D]
    cached_k, cached_v = (x.float().transpose(0, 1)[:, None] for x in (k, v))  # [G, 1, K, D]
    scores = (queries @ cached_k.transpose(2, 3)).mul_(layer.scale / layer.softcap).tanh_().mul_(layer.softcap)
    weights = scores.masked_fill_(hidden, -torch.inf).softmax(dim=-1)
    return (weights @ cached_v).permute(2, 0, 1, 3).flatten(1, 2).to(q.dtype)  # [n, H, D]
