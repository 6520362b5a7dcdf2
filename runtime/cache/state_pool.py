"""The states of layers that keep no keys: one for each row that runs, and snapshots behind them.

Decides their layout. Knows places, not their owners: a row's state is at the place of the row's number, 0 is the
padding row's, and snapshots follow the last row. A place is all layers' states after the same token.
"""

from collections.abc import Sequence

import torch

from ramet.kernels.cpu.memory import give_back
from ramet.kernels.reference_delta import DeltaShape, DeltaStates
from ramet.runtime.cache.pool import zeros_of


class StatePool:
    """S = max_running + 1 + num_snapshots places. `layers`: None where a layer keeps keys."""

    def __init__(
        self,
        layers: Sequence[DeltaShape | None],
        *,
        max_running: int,
        num_snapshots: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        places = max_running + 1 + num_snapshots

        def states(of: DeltaShape) -> DeltaStates:
            last = zeros_of((places, of.channels, of.taps - 1), dtype, device)
            return DeltaStates(last, zeros_of((places, of.value_heads, of.key, of.value), torch.float32, device))

        self.layers = [None if of is None else states(of) for of in layers]

    @property
    def nbytes(self) -> int:
        return sum(each.last.nbytes + each.matrix.nbytes for each in self.layers if each is not None)

    def give_back(self) -> None:
        """Its memory to the system, on a CPU: every state is zeros then."""
        for each in self.layers:
            if each is not None:
                give_back(each.last)
                give_back(each.matrix)

    def copy(self, source: int, target: int) -> None:
        """WRITES the state at `target`."""
        for each in self.layers:
            if each is not None:
                each.last[target], each.matrix[target] = each.last[source], each.matrix[source]


def bytes_per_state(layers: Sequence[DeltaShape | None], dtype: torch.dtype) -> int:
    """The bytes of one place over all layers; 0: no layer has a state."""
    return sum(
        of.channels * (of.taps - 1) * dtype.itemsize + of.value_heads * of.key * of.value * torch.float32.itemsize
        for of in layers
        if of is not None
    )
