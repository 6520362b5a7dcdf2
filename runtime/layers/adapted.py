"""Where an adapter (LoRA) is applied to a layer's output: each token that is being computed has one adapter or none.

Its arithmetic is in kernels/cpu/adapters.py, and on a GPU in kernels/stacked_adapters.py.
"""

from dataclasses import dataclass

from torch import Tensor

from ramet.kernels.stacked_adapters import LayerChanges


class TokenAdapters:
    """Which adapter each token has that the next layers compute."""

    def __init__(self) -> None:
        self.slots: Tensor | None = None  # [T] int32, 0 for none; None: no token has an adapter


@dataclass(frozen=True, slots=True)
class AdaptedLayer:
    tokens: TokenAdapters
    changes: LayerChanges

    def add(self, x: Tensor, out: Tensor) -> Tensor:
        """From inputs x [T, N]; WRITES out [T, M], which it returns."""
        slots = self.tokens.slots
        return out if slots is None else self.changes.add(x, out, slots)

    def add_rows(self, ids: Tensor, out: Tensor, scale: float) -> Tensor:
        """From ids [T] of an embedding; WRITES their rows out [T, N], which it returns."""
        slots = self.tokens.slots
        return out if slots is None else self.changes.add_rows(ids, out, slots, scale)
