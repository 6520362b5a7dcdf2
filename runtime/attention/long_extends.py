"""Long extends, in torch: a row's new tokens attend to its cached prefix and to themselves.

The new tokens are attended to without a copy and the cached prefix is gathered; both results are merged by their
log-sum-exp. Where a sliding window hides some of the keys or scores are capped, one block of queries goes after the
other against its keys: those between the oldest that its first query sees and its last query's own, so keys outside a
window are not read, and no mask or matrix of scores is larger than a block. Decides how many queries go together.
n queries, K keys of a block, H query heads, G kv heads, D head size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ramet.kernels.attention_call import AttendCall, AttentionRule

BLOCK = 256  # queries

Own = tuple[Tensor, Tensor]  # keys and values of n new tokens, [n, G, D] each
flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@dataclass(frozen=True, slots=True)
class LongRow:
    """One row's new tokens [first, stop) of T and the slots of all its tokens, of which they are the last."""

    first: int
    stop: int
    slots: Tensor  # [P + n] int64
    key_ends: Tensor | None = None  # [n] int32, keys that each token sees; None: those up to its own

    @property
    def prefix(self) -> Tensor:
        """[P], the slots of what is cached"""
        return self.slots[: len(self.slots) - (self.stop - self.first)]


def attend_row(row: LongRow, call: AttendCall) -> Tensor:
    """The call of the row's new tokens alone, whose keys and values are in the pool as well -> [n, H, D]."""
    rule = call.rule
    hides = row.key_ends is not None or (rule.window is not None and rule.window < len(row.slots))
    if call.k is None or call.v is None or rule.softcap is not None or hides or call.sinks is not None:
        return attend_in_blocks(row, call)
    return attend_long(call.q, (call.k, call.v), call.keys, call.values, row.prefix, rule.scale)


def attend_long(q: Tensor, new: Own, keys: Tensor, values: Tensor, prefix: Tensor, scale: float) -> Tensor:
    """q [n, H, D] over `new` keys and values causally and over the pool's slots `prefix` [P] whole -> [n, H, D]."""
    queries, (k, v) = heads_first(q), map(heads_first, new)
    own, own_lse = flash(queries, k, v, 0.0, True, scale=scale)  # [1, H, n, D], [1, H, n]
    if not len(prefix):
        return own[0].transpose(0, 1)
    cached_k, cached_v = keys.index_select(0, prefix), values.index_select(0, prefix)  # [P, G, D]
    cached, cached_lse = flash(queries, heads_first(cached_k), heads_first(cached_v), 0.0, False, scale=scale)
    share = torch.sigmoid(own_lse - cached_lse)[..., None]  # of the softmax's mass that lies on the new tokens
    return torch.lerp(cached.float(), own.float(), share)[0].transpose(0, 1)


def attend_in_blocks(row: LongRow, call: AttendCall) -> Tensor:
    """The queries [n, H, D] are the last of a row whose tokens are all in the pool -> [n, H, D]."""
    out = torch.empty(call.q.shape, dtype=call.q.dtype)
    num_cached, window = len(row.prefix), call.rule.window
    own = torch.arange(num_cached, len(row.slots))
    ends = own + 1 if row.key_ends is None else row.key_ends
    for start in range(0, len(call.q), BLOCK):
        block = slice(start, min(start + BLOCK, len(call.q)))
        first = num_cached + start  # position of the block's first query
        oldest = 0 if window is None else max(0, first - window + 1)
        at = row.slots[oldest : int(ends[block].max())]
        k, v = call.keys.index_select(0, at), call.values.index_select(0, at)  # [K, G, D]
        unseen = _unseen(own[block] - oldest, ends[block] - oldest, len(at), window)
        out[block] = _attend(call.q[block], k, v, unseen, call.rule, call.sinks)
    return out


def attend_densely(row: LongRow, call: AttendCall, k: Tensor, v: Tensor) -> Tensor:
    """The queries [n, H, D] are the last of the tokens of k, v [P + n, G, D], all under one mask -> [n, H, D]."""
    own = torch.arange(len(k) - len(call.q), len(k))
    ends = own + 1 if row.key_ends is None else row.key_ends
    return _attend(call.q, k, v, _unseen(own, ends, len(k), call.rule.window), call.rule, call.sinks)


def heads_first(x: Tensor) -> Tensor:
    """[n, heads, D] -> [1, heads, n, D], no copy."""
    return x.transpose(0, 1)[None]


def _unseen(own: Tensor, ends: Tensor, num_keys: int, window: int | None) -> Tensor:
    """[n, K] bool: a query, whose own key is `own` [n], sees those before `ends` [n] and in the window."""
    key = torch.arange(num_keys)[None, :]
    behind = key >= ends[:, None]
    return behind if window is None else behind | (key <= own[:, None] - window)


def _attend(q: Tensor, k: Tensor, v: Tensor, unseen: Tensor, rule: AttentionRule, sinks: Tensor | None) -> Tensor:
    if rule.softcap is not None:
        return _attend_capped(q, k, v, unseen, rule, sinks)
    mask = torch.zeros(unseen.shape, dtype=q.dtype).masked_fill_(unseen, -torch.inf)
    queries = heads_first(q)
    out, lse = flash(queries, heads_first(k), heads_first(v), 0.0, False, attn_mask=mask, scale=rule.scale)
    if sinks is not None:  # [H, n, 1]: what keys have of the weights
        out = (out.float() * torch.sigmoid(lse - sinks[:, None])[..., None]).to(q.dtype)
    return out[0].transpose(0, 1)


def _attend_capped(
    q: Tensor, k: Tensor, v: Tensor, unseen: Tensor, rule: AttentionRule, sinks: Tensor | None
) -> Tensor:
    """torch's fused attention has no cap, so scores are made here, in float32."""
    assert rule.softcap is not None, "a layer without a cap takes the fused way"
    group = q.shape[1] // k.shape[1]
    queries = q.float().unflatten(1, (-1, group)).permute(1, 2, 0, 3)  # [G, H / G, n, D]
    cached_k, cached_v = (x.float().transpose(0, 1)[:, None] for x in (k, v))  # [G, 1, K, D]
    scores = (queries @ cached_k.transpose(2, 3)).mul_(rule.scale / rule.softcap).tanh_().mul_(rule.softcap)
    scores = scores.masked_fill_(unseen, -torch.inf)
    if sinks is not None:
        of_heads = sinks.view(*scores.shape[:2], 1, 1).expand(-1, -1, len(q), -1)
        scores = torch.cat((scores, of_heads), dim=-1)
    weights = scores.softmax(dim=-1)[..., : len(k)]
    return (weights @ cached_v).permute(2, 0, 1, 3).flatten(1, 2).to(q.dtype)  # [n, H, D]
