"""Which experts every cached token went through, for `--enable-return-routed-experts`.

Decides where that is kept: by slot, beside keys and values, and written when these are. So a cached prefix has the
routes that it was computed with, whoever reads it, and slots that are given out again get new ones. Knows no request
and no router. S slots, M layers with experts, K experts of a token.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ramet.ipc.messages import RouteLayout
from ramet.kernels.cpu.memory import give_back
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.pool import zeros_of

Store = Callable[[Tensor, Tensor, Tensor], None]  # store_routes of kernels/reference_experts.py


class RouteTable:
    """`plan` before every forward pass: a step that is prepared has slots of its own."""

    def __init__(self, layout: RouteLayout, num_slots: int, device: torch.device, store: Store) -> None:
        self.layout, self._store = layout, store
        shape = len(layout.sparse), num_slots, layout.per_token
        self._table = zeros_of(shape, torch.int32, device)
        self._layers = list(self._table)  # [S, K] each: a list of calls may hold their addresses
        self._slots: Tensor | None = None

    def plan(self, slots: Tensor) -> None:
        """slots [T] int64 of the tokens that are computed next."""
        self._slots = slots

    def store(self, index: int, experts: Tensor) -> None:
        """experts [T, K] int32 of the planned tokens in the index-th layer that has some."""
        assert self._slots is not None, "a forward pass is planned before it runs"
        self._store(experts, self._slots, self._layers[index])

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Routes of slots source [n] int32 into slots target [n]."""
        source, target = (slots.long().to(self._table.device, non_blocking=True) for slots in (source, target))
        self._table[:, target] = self._table[:, source]

    def give_back(self) -> None:
        """Its memory to the system, on a CPU."""
        give_back(self._table)

    def read(self, slots: Ints) -> Ints:
        """slots [n] -> [n, M, K]"""
        at = torch.from_numpy(slots.astype(np.int64)).to(self._table.device)
        found: Ints = self._table.index_select(1, at).transpose(0, 1).contiguous().cpu().numpy()
        return found


def bytes_of_token(layout: RouteLayout) -> int:
    """In the table."""
    return len(layout.sparse) * layout.per_token * torch.int32.itemsize
