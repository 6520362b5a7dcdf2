"""LoRA adapters applied to a layer's output in plain torch, on a GPU, and as the oracle of kernels/cpu/adapters.py.

The low-rank products of all slots are stacked, computed for every token, and left out where a token has another adapter
(Hu et al. 2021): no sum leaves the device, and none depends on which tokens have which. T tokens, N in, M out, R rank,
V vocabulary, S slots; slot 0 is the model itself.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class LowRank:
    """Adds to columns [first, first + M) of a layer's outputs."""

    first: int
    down: Tensor  # [R, N]; of an embedding [V, R]
    up: Tensor  # [R, M], scaled


@dataclass(frozen=True, slots=True)
class WholeWeight:
    """Stands for the weight of columns [first, first + M) of a layer's outputs, and for their bias."""

    first: int
    weight: Tensor  # [M, N]; of an embedding [V, N]
    bias: Tensor | None  # [M]


Change = LowRank | WholeWeight
Changes = tuple[Change, ...]  # of one layer by one adapter; those of equal columns are not both there


class LayerChanges(Protocol):
    """What the adapters in S slots change in one layer."""

    def place(self, slot: int, changes: Changes) -> None:
        """From now on, of slot 1 to S; () for nothing."""

    def add(self, x: Tensor, out: Tensor, slots: Tensor) -> Tensor:
        """From the layer's inputs x [T, N]; slots [T] int32. WRITES out [T, M], which it returns."""

    def add_rows(self, ids: Tensor, out: Tensor, slots: Tensor, scale: float) -> Tensor:
        """`add` for embeddings of ids [T] int64, which are multiplied by `scale`."""


@dataclass(frozen=True, slots=True)
class _Stacked:
    """Low-rank changes of the same kind of all slots."""

    owners: Tensor  # [R of all], the slot of each
    downs: Tensor  # [R of all, N]; of an embedding [V, R of all]
    ups: Tensor  # [R of all, M of the layer], all finite

    def owned(self, inner: Tensor, slots: Tensor) -> Tensor:
        """inner [T, R of all] with zeros where a token has another adapter. A product with 0 would keep an infinity, of
        an adapter whose numbers are too large for this dtype, as a NaN in every row.
        """
        return torch.where(slots[:, None] == self.owners, inner, 0)


class StackedChanges:
    """Fits LayerChanges."""

    def __init__(self, num_out: int, by_rows: bool) -> None:
        """`num_out`: of the layer. `by_rows`: it is an embedding."""
        self._num_out, self._by_rows = num_out, by_rows
        self._placed: dict[int, Changes] = {}
        self._stacked: _Stacked | None = None

    def place(self, slot: int, changes: Changes) -> None:
        self._placed.pop(slot, None)
        if changes:
            self._placed[slot] = changes
        low = [(s, c) for s, all_of in self._placed.items() for c in all_of if isinstance(c, LowRank)]
        self._stacked = self._stack(low) if low else None

    def _stack(self, low: list[tuple[int, LowRank]]) -> _Stacked:
        owners, ups = [], []
        for slot, change in low:
            rank, count = change.up.shape
            owners.append(torch.full((rank,), slot, dtype=torch.int32, device=change.up.device))
            ups.append(functional.pad(change.up, (change.first, self._num_out - change.first - count)))
        return _Stacked(torch.cat(owners), torch.cat([c.down for _, c in low], int(self._by_rows)), torch.cat(ups))

    def add(self, x: Tensor, out: Tensor, slots: Tensor) -> Tensor:
        for slot, change in self._whole():
            part = out[:, change.first : change.first + len(change.weight)]
            own = functional.linear(x, change.weight, change.bias).to(out.dtype)
            part.copy_(torch.where((slots == slot)[:, None], own, part))
        if (all_of := self._stacked) is not None:
            out += all_of.owned(functional.linear(x, all_of.downs), slots) @ all_of.ups
        return out

    def add_rows(self, ids: Tensor, out: Tensor, slots: Tensor, scale: float) -> Tensor:
        for slot, change in self._whole():
            out.copy_(torch.where((slots == slot)[:, None], change.weight[ids] * scale, out))
        if (all_of := self._stacked) is not None:
            out += all_of.owned(all_of.downs[ids], slots) @ all_of.ups * scale
        return out

    def _whole(self) -> list[tuple[int, WholeWeight]]:
        return [(s, c) for s, all_of in self._placed.items() for c in all_of if isinstance(c, WholeWeight)]


def layer_changes(num_out: int, num_slots: int, by_rows: bool) -> LayerChanges:
    """What adapters in `num_slots` slots change in a layer of `num_out` outputs, or in an embedding (`by_rows`)."""
    return StackedChanges(num_out, by_rows)
