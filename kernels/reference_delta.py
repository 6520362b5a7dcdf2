"""Gated delta-net layers in plain torch (Yang et al. 2024, Gated Delta Networks): the oracle of kernels/cpu/delta.cpp
and kernels/delta_net.py.

Of each token x = [q | k | v | z] with gates [b | a]: q, k and v pass a causal convolution over the last tokens, and
silu; then a state S of each value head forgets, is corrected towards v at k, and is read at q, in float32:

    S = exp(g) S      d = sigmoid(b) (v - S^T k)      S = S + k d^T      o = S^T q      g = -exp(A_log) softplus(a + dt)

q and k have length one, q is divided by sqrt(K). What leaves is norm(o) silu(z). A state is all that later tokens need
of earlier ones. T new tokens, R rows, S places of states, G heads of keys, H of values (H / G share a key), K and V
their sizes, C = 2 G K + H V channels of the convolution, W its taps.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

Ints = npt.NDArray[np.int32]
MIN_SQUARE = 1e-6  # added to the square of a length
ALIGNED = 4  # numbers of 16 bytes


@dataclass(frozen=True, slots=True)
class DeltaShape:
    key_heads: int
    value_heads: int
    key: int  # numbers of each head
    value: int
    taps: int  # tokens that the convolution sees, its own included

    @property
    def keys(self) -> int:
        return self.key_heads * self.key

    @property
    def values(self) -> int:
        return self.value_heads * self.value

    @property
    def channels(self) -> int:
        return 2 * self.keys + self.values

    @property
    def inputs(self) -> int:
        """Numbers of a token: q, k, v, z."""
        return self.channels + self.values


@dataclass(frozen=True, slots=True)
class DeltaWeights:
    conv: Tensor  # [C, 1, W]
    a_log: Tensor  # [H] float32
    dt_bias: Tensor  # [H] float32
    norm: Tensor  # [V]
    eps: float


@dataclass(frozen=True, slots=True)
class DeltaStates:
    """The states of one layer."""

    last: Tensor  # [S, C, W - 1] of the inputs' dtype: what the convolution saw of the last tokens, the oldest first
    matrix: Tensor  # [S, H, K, V] float32


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """A step's rows on the device, as int32."""

    rows: Tensor  # [R]
    firsts: Tensor  # [R] where each row's tokens begin among the T
    num_new: Tensor  # [R]
    seq_lens: Tensor  # [R]
    row_of: Tensor  # [T] which of the R each token's is
    save_at: Tensor  # [R, n]
    save_to: Tensor  # [R, n]

    @staticmethod
    def of(at: "StateRows", device: torch.device) -> "PlacedRows":
        """By one copy, each aligned, so that kernels are compiled once."""
        num, firsts = len(at.rows), np.cumsum(at.num_new) - at.num_new
        none = np.zeros((num, 0), np.int32)
        saves = (none, none) if at.save_at is None or at.save_to is None else (at.save_at, at.save_to)
        row_of = np.repeat(np.arange(num), at.num_new)
        columns = at.rows, firsts, at.num_new, at.seq_lens, row_of, *(each.ravel() for each in saves)
        sizes = [-(-len(column) // ALIGNED) * ALIGNED for column in columns]
        packed = np.zeros(sum(sizes), np.int32)
        for start, column in zip(np.cumsum(sizes) - sizes, columns, strict=True):
            packed[start : start + len(column)] = column
        parts = torch.from_numpy(packed).to(device, non_blocking=True).split(sizes)
        placed = PlacedRows(*(part[: len(column)] for part, column in zip(parts, columns, strict=True)))
        shape = saves[0].shape
        return replace(placed, save_at=placed.save_at.view(shape), save_to=placed.save_to.view(shape))

    @staticmethod
    def decoding(rows: Tensor, seq_lens: Tensor) -> "PlacedRows":
        """One token of each, which are read where these lie."""
        num = torch.arange(len(rows), dtype=torch.int32, device=rows.device)
        none = rows.new_empty((len(rows), 0))
        return PlacedRows(rows, num, torch.ones_like(num), seq_lens, num, none, none)


@dataclass(frozen=True, slots=True)
class StateRows:
    """Which states the rows of a step go on with, on the host. A row whose first new token is its first begins anew."""

    rows: Ints  # [R] the place of each row's state
    num_new: Ints  # [R]
    seq_lens: Ints  # [R] new tokens included
    save_at: Ints | None = None  # [R, n] after so many new tokens the state is copied to save_to; 0: it is not
    save_to: Ints | None = None  # [R, n] places
    placed: PlacedRows | None = None  # the same on the device, if it is there


def delta_net(
    x: Tensor, gates: Tensor, of: DeltaShape, weights: DeltaWeights, states: DeltaStates, at: StateRows
) -> Tensor:
    """x [T, inputs] and gates [T, 2 H], rows one behind the other -> [T, H V]. WRITES states."""
    out = x.new_empty((len(x), of.values))
    first = 0
    for r, (row, num, length) in enumerate(zip(at.rows, at.num_new, at.seq_lens, strict=True)):
        if length == num:
            states.last[row], states.matrix[row] = 0, 0
        start = 0
        for stop, to in [*_saves(at, r), (int(num), None)]:
            part = slice(first + start, first + stop)
            if start < stop:
                out[part] = _advance(x[part], gates[part], of, weights, states, int(row))
            if to is not None:
                states.last[to], states.matrix[to] = states.last[row], states.matrix[row]
            start = stop
        first += int(num)
    return out


def sigmoid_mul(x: Tensor, gates: Tensor) -> Tensor:
    """x [T, N] times the sigmoid of gates [T, N], whose rows may be strided -> [T, N]"""
    return x * torch.sigmoid(gates.float()).to(x.dtype)


def _saves(at: StateRows, r: int) -> list[tuple[int, int | None]]:
    """(new tokens, place) of a row, in their order."""
    if at.save_at is None or at.save_to is None:
        return []
    pairs = zip(at.save_at[r].tolist(), at.save_to[r].tolist(), strict=True)
    return sorted((num, to) for num, to in pairs if num)


def _advance(x: Tensor, gates: Tensor, of: DeltaShape, weights: DeltaWeights, states: DeltaStates, row: int) -> Tensor:
    """x [n, inputs] and gates [n, 2 H] of one row's next tokens -> [n, H V]. WRITES its state."""
    mixed, z = x.split([of.channels, of.values], dim=1)
    b, a = gates.split(of.value_heads, dim=1)
    seen = torch.cat([states.last[row], mixed.T], dim=1)  # [C, W - 1 + n]
    states.last[row] = seen[:, seen.shape[1] - of.taps + 1 :]
    mixed = functional.silu(functional.conv1d(seen[None], weights.conv, groups=of.channels))[0].T  # [n, C]
    q, k, v = mixed.float().split([of.keys, of.keys, of.values], dim=1)
    repeated = of.value_heads // of.key_heads
    q, k = (_unit(each.view(len(x), of.key_heads, of.key)).repeat_interleave(repeated, dim=1) for each in (q, k))
    q, v = q / of.key**0.5, v.view(len(x), of.value_heads, of.value)
    decay = (-weights.a_log.exp() * functional.softplus(a.float() + weights.dt_bias)).exp()  # [n, H]
    beta = torch.sigmoid(b).float()
    s = states.matrix[row]
    read = torch.empty_like(v)
    for t in range(len(x)):
        s *= decay[t, :, None, None]
        missing = beta[t, :, None] * (v[t] - (s * k[t, :, :, None]).sum(1))  # [H, V]
        s += k[t, :, :, None] * missing[:, None]
        read[t] = (s * q[t, :, :, None]).sum(1)
    o = read.to(x.dtype).float()
    normed = weights.norm * (o * torch.rsqrt(o.square().mean(-1, keepdim=True) + weights.eps)).to(x.dtype)
    return (normed * functional.silu(z.view(normed.shape).float())).to(x.dtype).view(len(x), of.values)


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + MIN_SQUARE)
