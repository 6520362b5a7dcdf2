"""Every op of a model step in plain torch: slow, readable, the oracle of the compiled kernels with the same signatures.

Decides the arithmetic (rounding points included) that a fast kernel must reproduce. Knows no model and no batch.
T new tokens, N hidden size, F intermediate size, H query heads, G key/value heads, D head size, S slots of the pool,
R rows, L longest context. Every float tensor of a call has the same dtype unless a line says otherwise.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ramet.kernels.attention_call import AttendCall
from ramet.kernels.draw_params import DrawParams
from ramet.kernels.epilogue_rows import DrawnRows, EpilogueRows, EpilogueState
from ramet.kernels.packers import Packers
from ramet.kernels.philox import uniforms
from ramet.kernels.reference_delta import delta_net as delta_net
from ramet.kernels.reference_delta import sigmoid_mul as sigmoid_mul
from ramet.kernels.reference_experts import mixture as mixture
from ramet.kernels.reference_experts import route as route
from ramet.kernels.reference_experts import store_routes as store_routes
from ramet.kernels.reference_latent import of_heads as of_heads
from ramet.kernels.reference_latent import store_latents as store_latents
from ramet.kernels.reference_weights import Int4Weight, Int8Weight, rounded, words_kept
from ramet.kernels.stacked_adapters import layer_changes as layer_changes

LARGEST_FP8 = 448.0  # of e4m3

packers = Packers(Int8Weight.of, Int4Weight.of, words_kept)


class HeadNorms(NamedTuple):
    """Weights [D] of the norms of each query head and of each key head, both of one dtype: as `norm_heads`."""

    q: Tensor
    k: Tensor
    eps: float
    values: bool = False  # heads of values are normed too, without a weight


class RopeTables(NamedTuple):
    """Cosines and sines of every position, [L, rotary_dim / 2] float32 each."""

    cos: Tensor
    sin: Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., N] -> [..., N], by weight [N] of the dtype of x, or of float32.

    The normalised value is rounded to the dtype of the weight before it is multiplied, and the product to that of x.
    """
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (weight * scaled.to(weight.dtype)).to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """residual [T, N] is WRITTEN: residual += x. Returns the norm of the sum. [T, N]"""
    residual += x
    return rms_norm(residual, weight, eps)


def norm_heads(x: Tensor, weight: Tensor | None, eps: float) -> None:
    """Each head's own norm. WRITES x [T, heads, D] (rows may be strided); weight [D], or None: no weight."""
    x.copy_(rms_norm(x, x.new_ones(x.shape[-1]) if weight is None else weight, eps))


def silu_mul(gate_up: Tensor) -> Tensor:
    """[T, 2 F] -> [T, F]: silu of the first half, rounded, times the second half."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate) * up


def gelu_mul(gate_up: Tensor, tanh: bool) -> Tensor:
    """[T, 2 F] -> [T, F]: gelu of the first half, exact or by tanh, rounded, times the second half."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.gelu(gate, approximate="tanh" if tanh else "none") * up


def gelu_by(gate: Tensor, up: Tensor, tanh: bool) -> Tensor:
    """`gelu_mul` where gate [T, F] and up [T, F] lie apart (rows may be strided)."""
    return functional.gelu(gate, approximate="tanh" if tanh else "none") * up


def add_scaled(x: Tensor, y: Tensor | None, factor: Tensor | None) -> None:
    """x [T, N] is WRITTEN: (x + y) * factor, without what is None. y [T, N]; factor [1] float32."""
    if y is not None:
        x += y
    if factor is not None:
        x.copy_((x.float() * factor).to(x.dtype))


def clamped_mul(gate_up: Tensor, alpha: float, limit: float) -> Tensor:
    """[T, 2 F] -> [T, F]: gate * sigmoid(alpha * gate) * (up + 1), rounded once (gpt-oss).

    The first half, gate, is `limit` at most; up lies between -limit and limit.
    """
    gate, up = gate_up.float().chunk(2, dim=-1)
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (gate * torch.sigmoid(alpha * gate) * (up + 1)).to(gate_up.dtype)


def softcap(x: Tensor, cap: float) -> None:
    """WRITES x: each value v becomes cap * tanh(v / cap)."""
    x.div_(cap).tanh_().mul_(cap)


def gather(table: Tensor, ids: Tensor, scale: float) -> Tensor:
    """The rows ids [T] int64 of table [V, N], times `scale`. [T, N]"""
    rows = table.index_select(0, ids)
    return rows if scale == 1.0 else rows * scale


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
    """k, v [T, G, D] (rows may be strided) into keys, values [S, G, D], which are WRITTEN, at slots [T] int64.

    keys and values of int8 are [S, G, D + 4]: whole numbers and a scale, as `quantised` makes them. Of
    float8_e4m3fn what is beyond the largest number becomes that.
    """
    for x, pool in ((k, keys), (v, values)):
        pool[slots] = stored(x, pool.dtype)


def stored(x: Tensor, dtype: torch.dtype) -> Tensor:
    """What a pool of that type holds of x."""
    if dtype == torch.int8:
        return quantised(x)
    return x.float().clamp(-LARGEST_FP8, LARGEST_FP8).to(dtype) if dtype == torch.float8_e4m3fn else x.to(dtype)


def norm_rope_store(
    qkv: Tensor,
    heads: int,
    rope: RopeTables,
    positions: Tensor,
    norms: HeadNorms | None,
    keys: Tensor,
    values: Tensor,
    slots: Tensor,
) -> None:
    """What comes between a layer's projection and its attention: norms of heads, `rotate`, `store_kv`.

    qkv [T, H + 2 G, D] is WRITTEN where heads are normed, or of queries and keys turn: it has H = `heads` of queries,
    then G of keys, then G of values.
    """
    turning = qkv.shape[1] - keys.shape[1]
    if norms is not None:
        norm_heads(qkv[:, :heads], norms.q, norms.eps)
        norm_heads(qkv[:, heads:turning], norms.k, norms.eps)
        if norms.values:
            norm_heads(qkv[:, turning:], None, norms.eps)
    rotate(qkv[:, :turning], *rope, positions)
    store_kv(qkv[:, heads:turning], qkv[:, turning:], keys, values, slots)


def quantised(x: Tensor) -> Tensor:
    """[..., D] -> [..., D + 4] int8: whole numbers in [-127, 127] and the bytes of their float32 scale."""
    whole, scales = rounded(x)
    return torch.cat((whole.to(torch.int8), scales.contiguous().view(torch.int8)), dim=-1)


def widened(x: Tensor) -> Tensor:
    """Keys or values of any dtype as float32; of int8 [..., D + 4] -> [..., D]."""
    if x.dtype != torch.int8:
        return x.float()
    return x[..., :-4].float() * x[..., -4:].contiguous().view(torch.float32)


def extend_attention(
    call: AttendCall, rows: list[int], num_new: list[int], seq_lens: list[int], key_ends: Tensor | None = None
) -> Tensor:
    """Causal attention of each row's new tokens, all of which are in the pool already. Computes in float32.

    Row r lies in the table's rows[r] and owns the next num_new[r] of the T queries; they are the last of its
    seq_lens[r] positions. A query sees its own key and those before it, `window` in all. key_ends [T] integer: number
    of keys of its row that a query sees, its own and maybe some behind it; a window counts from its own in any case.
    Returns [T, H, W], where W is the size of a value.
    """
    q, values, window, softcap = call.q, call.values, call.rule.window, call.rule.softcap
    width = values.shape[2] - (4 if values.dtype == torch.int8 else 0)
    out, group, first = q.new_empty(*q.shape[:2], width), q.shape[1] // call.keys.shape[1], 0
    for row, new, length in zip(rows, num_new, seq_lens, strict=True):
        at = call.table[row, :length].long()
        k = widened(call.keys[at]).repeat_interleave(group, dim=1)  # [length, H, D]
        v = widened(values[at]).repeat_interleave(group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q[first : first + new].float(), k) * call.rule.scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        last_key = torch.arange(length - new, length, device=q.device)[:, None]  # a query's own
        key = torch.arange(length, device=q.device)[None, :]
        end = last_key + 1 if key_ends is None else key_ends[first : first + new, None]
        hidden = (key >= end) if window is None else (key >= end) | (key <= last_key - window)
        scores = scores.masked_fill(hidden, -torch.inf)
        if call.sinks is not None:
            scores = torch.cat((scores, call.sinks.float()[:, None, None].expand(-1, new, 1)), dim=-1)
        weights = scores.softmax(dim=-1)[..., :length]
        out[first : first + new] = torch.einsum("hqk,khd->qhd", weights, v).to(q.dtype)
        first += new
    return out


def penalise(
    logits: Tensor,
    rows: Tensor,
    slots: Tensor,
    frequency: Tensor,
    presence: Tensor,
    repetition: Tensor,
    counts: Tensor,
    seen: Tensor,
) -> None:
    """Lower the logits of what was drawn. WRITES logits [Q, V] float32 in `rows`, each of which comes once.

    rows, slots [P] int32; frequency, presence, repetition [P] float32. counts [S, V] uint8: how often each token was
    drawn; seen [S, ceil(V / 32)] int32: a bit for each token that repetition scales though it was not drawn.
    """
    rows, slots = rows.long(), slots.long()
    count = counts[slots].float()  # [P, V]
    drawn = count > 0
    value = logits[rows] - (frequency[:, None] * count + presence[:, None] * drawn)
    factor = repetition[:, None]
    scaled = torch.where(value < 0, value * factor, value / factor)
    logits[rows] = torch.where(drawn | unpack_bits(seen[slots], logits.shape[1]), scaled, value)


def unpack_bits(words: Tensor, num: int) -> Tensor:
    """words [P, W] int32 -> [P, num] bool: bit i of word w is element 32 w + i."""
    bits = words[:, :, None] >> torch.arange(32, dtype=torch.int32, device=words.device) & 1
    return bits.flatten(1)[:, :num].bool()


def count_tokens(counts: Tensor, rows: Tensor, slots: Tensor, tokens: Tensor) -> None:
    """One more of tokens[rows] in slots; WRITES counts [S, V] uint8, which stop at 255.

    rows, slots [P] int32, no slot twice; tokens [Q] int64.
    """
    at = slots.long(), tokens[rows.long()]
    now = counts[at]
    counts[at] = now + (now < 255).to(torch.uint8)


def adjust_logits(logits: Tensor, rows: EpilogueRows, state: EpilogueState) -> None:
    """Penalties, then biases. WRITES logits [Q, V] float32."""
    at = torch.nonzero(rows.slots).flatten().int()
    slots, frequency, presence, repetition = (
        column[at.long()] for column in (rows.slots, rows.frequency, rows.presence, rows.repetition)
    )
    penalise(logits, at, slots, frequency, presence, repetition, state.counts, state.seen)
    logits.index_put_(_owned(rows.bias_starts, rows.bias_ids), rows.biases, accumulate=True)


def mask_logits(logits: Tensor, rows: EpilogueRows, state: EpilogueState) -> None:
    """What must not be drawn gets -inf. WRITES logits [Q, V] float32."""
    logits[_owned(rows.ban_starts, rows.ban_ids)] = -torch.inf
    at = torch.nonzero(rows.masks >= 0).flatten()
    mask(logits, at, state.allowed[rows.masks[at].long()])


def mask(logits: Tensor, rows: Tensor, allowed: Tensor) -> None:
    """What a grammar forbids gets -inf. WRITES logits [Q, V] float32 in `rows` [K] int32; allowed [K, W] int32."""
    at = rows.long()
    logits[at] = logits[at].masked_fill(~unpack_bits(allowed, logits.shape[1]), -torch.inf)


def logits_epilogue(logits: Tensor, rows: EpilogueRows, state: EpilogueState, adjusted: bool = False) -> DrawnRows:
    """One token for each row of logits [Q, V] (any float dtype, not written), as `draw` has it.

    WRITES state.counts, state.lengths and state.next_ids.

    `adjusted`: what `adjust_logits` does is in the logits already.
    """
    values = logits.float().clone()
    if rows.penalises and not adjusted:
        adjust_logits(values, rows, state)
    mask_logits(values, rows, state)
    tokens, finite = draw(values, rows.draw_params, rows.positions)
    if rows.penalises:
        at = torch.nonzero(rows.slots).flatten()
        count_tokens(state.counts, at, rows.slots[at], tokens)
    at = torch.nonzero(rows.table_rows >= 0).flatten()
    table_rows = rows.table_rows[at].long()
    state.lengths[table_rows] += 1
    state.next_ids[table_rows] = tokens[at].int()
    temperature = rows.draw_params.temperature
    values /= torch.where(temperature > 0, temperature, 1.0)[:, None]
    logprobs = torch.log_softmax(values, dim=-1).gather(-1, tokens[:, None]).squeeze(-1)
    return DrawnRows(tokens, logprobs, finite)


def draw(logits: Tensor, params: DrawParams[Tensor], positions: Tensor) -> tuple[Tensor, Tensor]:
    """One token for each row of logits [Q, V] float32: the best one at temperature 0, else one that is drawn.

    positions [Q] int64. A token stays if fewer than top_k are more probable, if those have less than top_p of the whole
    distribution's mass ("joint": measured before top_k), and if it has min_p of the best one's; of equals the lower id
    comes first. The draw inverts the mass of the tokens that stay, in the order of ids, at the Philox number of the
    row's own seed and position, so it depends on no other row. Returns tokens [Q] int64 and [Q] bool: False where the
    logits are not finite and the token means nothing.
    """
    best, tokens = logits.max(dim=-1)
    drawn = invert(kept_weights(logits, params), uniforms(params.seeds, positions))
    return torch.where(params.temperature > 0, drawn, tokens), torch.isfinite(best)


def advance(rows: Tensor, tokens: Tensor, next_ids: Tensor, lengths: Tensor) -> None:
    """rows [Q] int64 drew tokens [Q] int64. WRITES next_ids [M] int32, and adds 1 to lengths [M] int32, in these."""
    lengths[rows] += 1
    next_ids[rows] = tokens.to(torch.int32)


def normalise(logits: Tensor, rows: Tensor, temperature: Tensor, num_top: int) -> tuple[Tensor, Tensor, Tensor]:
    """What log-probabilities at `temperature` need of some rows of logits [Q, V] float32.

    rows [R] int64, temperature > 0 [R] float32; num_top <= V. Returns best [R] and log_sums [R] float32, so that the
    log-probability of x is (x - best) / temperature - log_sum, and the tokens of the largest logits, largest first, of
    equals the lower id [R, num_top] int64.
    """
    own = logits[rows]
    best = own.max(dim=-1, keepdim=True).values
    log_sums = torch.logsumexp((own - best) / temperature[:, None], dim=-1)
    tokens = own.sort(dim=-1, descending=True, stable=True).indices[:, :num_top] if num_top else rows[:, None][:, :0]
    return best.squeeze(-1), log_sums, tokens


def kept_weights(logits: Tensor, params: DrawParams[Tensor]) -> Tensor:
    """Unnormalised probabilities [Q, V] of what the cuts leave, 0 elsewhere; the best token's is 1."""
    temperature, top_k, top_p = params.temperature, params.top_k, params.top_p
    best = logits.max(dim=-1, keepdim=True).values
    weights = torch.exp((logits - best) / torch.where(temperature > 0, temperature, 1.0)[:, None])
    if bool(((top_k > 0) | (top_p < 1)).any()):
        values, ids = weights.sort(dim=-1, descending=True, stable=True)
        before = values.cumsum(dim=-1, dtype=torch.float64) - values  # mass of the more probable ones
        keep = before < (top_p.double() * weights.sum(dim=-1, dtype=torch.float64))[:, None]
        keep |= (top_p >= 1)[:, None]
        keep &= (top_k <= 0)[:, None] | (torch.arange(logits.shape[1], device=logits.device) < top_k[:, None])
        keep[:, 0] = True
        weights = torch.zeros_like(weights).scatter_(-1, ids, values.where(keep, 0.0))
    return weights.where(weights >= params.min_p[:, None], 0.0)


def invert(weights: Tensor, random: Tensor) -> Tensor:
    """Index drawn from unnormalised weights [Q, K] by inverting their cumulative sum at `random` [Q] in [0, 1)."""
    mass = weights.cumsum(dim=-1, dtype=torch.float64)
    target = random * mass[:, -1]
    index = torch.searchsorted(mass, target[:, None], right=True).squeeze(-1)
    last = weights.shape[-1] - 1 - (weights > 0).flip(-1).to(torch.uint8).argmax(dim=-1)  # rounding must not pass it
    return torch.minimum(index, last)


def _owned(starts: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """An index of the logits that rows own: row q has ids[starts[q] : starts[q + 1]]."""
    lengths = (starts[1:] - starts[:-1]).long()
    rows = torch.repeat_interleave(torch.arange(len(lengths), device=ids.device), lengths)
    return rows, ids.long()
