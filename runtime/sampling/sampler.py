"""From logits to tokens: temperature, softmax, top_k, top_p, min_p, draw, in that order.

Decides the draw and what is cut from the distribution. Knows no request. Every row is independent of its neighbours:
its random number is a function of its own seed and position alone (Philox4x32-10, Salmon et al. 2011).
top_p is measured on the distribution before top_k renormalises it ("joint"). Q rows, V vocabulary, K candidates.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ramet.runtime.sampling.columns import SamplingColumns

FEW = 256  # candidates tried before a row's whole vocabulary is sorted


def sample(logits: Tensor, columns: SamplingColumns) -> tuple[Tensor, tuple[int, ...]]:
    """Draw one token per row.

    logits: [Q, V] float32, WRITTEN where columns.banned says so. Returns tokens [Q] int64 and the rows whose logits are
    not finite (their token means nothing).
    """
    for row, ids in columns.banned:
        logits[row, torch.from_numpy(ids).to(logits.device).long()] = -torch.inf
    best, tokens = logits.max(dim=-1)
    broken = tuple(torch.nonzero(~torch.isfinite(best)).flatten().tolist())
    drawing = np.flatnonzero(columns.temperature > 0)
    if len(drawing):
        rows = [int(i) for i in drawing if int(i) not in broken]
        if rows:
            at = torch.tensor(rows, device=logits.device)
            tokens[at] = _draw(logits[at], best[at], columns, np.asarray(rows))
    return tokens, broken


def uniforms(seeds: npt.NDArray[np.uint64], positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """One number in [0, 1) for every (seed, position). [Q]"""
    mask = np.uint64(0xFFFFFFFF)
    low, high = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
    counter = positions.astype(np.uint64)
    c0, c1 = counter & mask, counter >> np.uint64(32)
    c2, c3 = np.zeros_like(c0), np.zeros_like(c0)
    k0, k1 = seeds & mask, seeds >> np.uint64(32)
    for _ in range(10):
        p0, p1 = low * c0, high * c2
        c0, c1, c2, c3 = (p1 >> np.uint64(32)) ^ c1 ^ k0, p1 & mask, (p0 >> np.uint64(32)) ^ c3 ^ k1, p0 & mask
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & mask, (k1 + np.uint64(0xBB67AE85)) & mask
    return ((c0 << np.uint64(21)) | (c1 >> np.uint64(11))).astype(np.float64) * 2.0**-53


def _draw(logits: Tensor, best: Tensor, columns: SamplingColumns, rows: npt.NDArray[np.int64]) -> Tensor:
    device = logits.device
    temperature = torch.from_numpy(columns.temperature[rows]).to(device)
    weights = torch.exp((logits - best[:, None]) / temperature[:, None])  # [q, V]; the best token weighs 1
    random = torch.from_numpy(uniforms(columns.seeds[rows], columns.positions[rows])).to(device)
    top_k, top_p, min_p = columns.top_k[rows], columns.top_p[rows], columns.min_p[rows]
    ranked = (top_k > 0) | (top_p < 1)  # these need an order; the others are drawn as they lie
    tokens = torch.empty(len(rows), dtype=torch.int64, device=device)
    for needs_order in (False, True):
        part = np.flatnonzero(ranked == needs_order)
        if not len(part):
            continue
        at = torch.from_numpy(part).to(device)
        own = weights if len(part) == len(rows) else weights[at]
        floor = torch.from_numpy(min_p[part]).to(device)
        if needs_order:
            k, p = torch.from_numpy(top_k[part]).to(device), torch.from_numpy(top_p[part]).to(device)
            tokens[at] = _draw_ranked(own, k, p, floor, random[at])
        else:
            tokens[at] = _invert(torch.where(own >= floor[:, None], own, 0.0), random[at])
    return tokens


def _draw_ranked(weights: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, random: Tensor) -> Tensor:
    """weights [q, V], each row's best is 1. Sorts only as many candidates as the rows turn out to need."""
    total = weights.sum(dim=-1, dtype=torch.float64)
    vocabulary = weights.shape[-1]
    num = min(vocabulary, max(FEW, int(top_k.max())))
    while True:
        values, ids = torch.topk(weights, num, dim=-1) if num < vocabulary else weights.sort(dim=-1, descending=True)
        before = values.cumsum(dim=-1, dtype=torch.float64) - values  # mass of the better candidates
        keep = before < top_p[:, None].double() * total[:, None]
        enough = ~keep[:, -1] | ((top_k > 0) & (top_k <= num))
        if num == vocabulary or bool(enough.all()):
            break
        num = vocabulary
    rank = torch.arange(num, device=weights.device)
    keep &= (top_k[:, None] <= 0) | (rank < top_k[:, None])
    keep &= values >= min_p[:, None]
    keep[:, 0] = True
    chosen = _invert(torch.where(keep, values, 0.0), random)
    return ids.gather(-1, chosen[:, None]).squeeze(-1)


def _invert(weights: Tensor, random: Tensor) -> Tensor:
    """Index drawn from unnormalised weights [q, K] by inverting their cumulative sum at `random` [q] in [0, 1)."""
    mass = weights.cumsum(dim=-1, dtype=torch.float64)
    target = random * mass[:, -1]
    index = torch.searchsorted(mass, target[:, None], right=True).squeeze(-1)
    last = weights.shape[-1] - 1 - (weights > 0).flip(-1).to(torch.uint8).argmax(dim=-1)  # rounding must not pass it
    return torch.minimum(index, last)
